package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// text is a piece of a file that a user reads.
type text struct {
	path    string
	content string
	// marks give the line of the file at offsets of the content.
	marks []mark
	// name is true for the name of a file or of something declared.
	name bool
}

type mark struct{ offset, line int }

func (t text) lineAt(offset int) int {
	line := 1
	for _, m := range t.marks {
		if m.offset > offset {
			break
		}
		line = m.line
	}
	return line
}

// add appends a piece that begins at the line.
func (t *text) add(piece string, line int) {
	t.marks = append(t.marks, mark{len(t.content), line})
	for i, r := range piece {
		if r == '\n' {
			line++
			t.marks = append(t.marks, mark{len(t.content) + i + 1, line})
		}
	}
	t.content += piece
}

// Generated files repeat their sources, which `make verify-generate` proves.
var generated = regexp.MustCompile(`^(config/crd/bases/|examples/[^/]+/config/crd/|charts/fixpoint/files/|dist/|apis/[^/]+/applyconfiguration/|.*zz_generated|.*/package-lock\.json$|.*go\.(sum|mod)$|.*\.tape$|bin(/|$))`)

// listFiles returns the files of the repository that are not ignored, sorted.
func listFiles(root string) ([]string, error) {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files of %s with git: %w", root, err)
	}
	var paths []string
	for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if path != "" && !generated.MatchString(path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// readTexts returns what a user reads of a file, its name included. A file that was
// deleted and is still in git's index has none.
func readTexts(root, path string) ([]text, error) {
	full := filepath.Join(root, path)
	if info, err := os.Lstat(full); err != nil || !info.Mode().IsRegular() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		return nil, nil
	}
	content, err := os.ReadFile(full)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	texts := []text{nameText(path, strings.TrimSuffix(path, filepath.Ext(path)), 1)}
	switch {
	case bytes.IndexByte(content, 0) >= 0:
		return texts, nil
	case strings.HasSuffix(path, ".go"):
		parts, err := goTexts(path, content)
		return append(texts, parts...), err
	default:
		return append(texts, plainText(path, string(content))), nil
	}
}

// linePrefix is what begins a line without being said: comments, quotes, list items.
var linePrefix = regexp.MustCompile(`(?m)^([ \t]*)(#+!?|//+|>|\*|-|--)([ \t])`)

func plainText(path, content string) text {
	t := text{path: path}
	t.add(linePrefix.ReplaceAllString(content, " $1$3"), 1)
	return t
}

// nameText splits a name into words: deletesStrangers_test is "deletes strangers test".
func nameText(path, name string, line int) text {
	var out strings.Builder
	var before rune
	for _, r := range name {
		switch {
		case r == '_' || r == '-' || r == '/' || r == '.':
			r = ' '
		case unicode.IsUpper(r) && unicode.IsLower(before):
			out.WriteByte(' ')
		}
		out.WriteRune(unicode.ToLower(r))
		before = r
	}
	t := text{path: path, name: true}
	t.add(out.String(), line)
	return t
}

// goTexts returns comments, string literals and declared names.
func goTexts(path string, content []byte) ([]text, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parsing Go: %w", err)
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	g := &goFile{path: path, line: func(pos token.Pos) int { return files.Position(pos).Line }}
	for _, group := range file.Comments {
		g.comment(group)
	}
	for _, decl := range file.Decls {
		g.names(decl)
	}
	ast.Inspect(file, g.literals)
	return g.texts, nil
}

type goFile struct {
	path  string
	line  func(token.Pos) int
	texts []text
}

func (g *goFile) comment(group *ast.CommentGroup) {
	t := text{path: g.path}
	for _, c := range group.List {
		if strings.HasPrefix(c.Text, "//go:") {
			continue
		}
		t.add(strings.TrimPrefix(c.Text, "//")+"\n", g.line(c.Pos()))
	}
	g.texts = append(g.texts, t)
}

// names adds what a declaration of the package names.
func (g *goFile) names(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		g.name(decl.Name)
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				g.name(spec.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					g.name(name)
				}
			}
		}
	}
}

// literals adds the string literals below a node, but not imports and struct tags,
// which programs read.
func (g *goFile) literals(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.Field:
		ast.Inspect(n.Type, g.literals)
		return false
	case *ast.BinaryExpr, *ast.BasicLit:
		t := text{path: g.path}
		if g.joined(n.(ast.Expr), &t) { //nolint:errcheck // both cases are expressions
			g.texts = append(g.texts, t)
			return false
		}
	}
	return true
}

// joined adds a literal, or a sum of literals that is broken over lines.
func (g *goFile) joined(n ast.Expr, t *text) bool {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind != token.STRING {
			return false
		}
		value, err := strconv.Unquote(n.Value)
		if err != nil {
			return false
		}
		if n.Value[0] == '"' { // an escaped line break is no line of the file
			value = strings.ReplaceAll(value, "\n", " ")
		}
		t.add(value, g.line(n.Pos()))
		return true
	case *ast.BinaryExpr:
		return n.Op == token.ADD && g.joined(n.X, t) && g.joined(n.Y, t)
	default:
		return false
	}
}

func (g *goFile) name(ident *ast.Ident) {
	g.texts = append(g.texts, nameText(g.path, ident.Name, g.line(ident.Pos())))
}
