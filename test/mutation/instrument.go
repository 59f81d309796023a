package mutation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one change of the code that an operator makes.
type Mutant struct {
	// ID numbers the mutants of a package from 1.
	ID int
	// File is relative to the root of the repository. Line is where the changed code begins.
	File string
	Line int
	// Function that the code is in, and what the operator does to which code. With the file, they are how a
	// mutant is named in equivalents.yaml, so that it keeps its name when lines move.
	Function, Operator, Code string
}

// String is the line of the report.
func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", m.File, m.Line, m.Operator, m.Code)
}

// Instrumented is a package in which each mutant can be turned on at run time, so that it is compiled once.
type Instrumented struct {
	ImportPath, Dir string
	Mutants         []Mutant
	// Files are the contents of the changed and added files by their path.
	Files map[string][]byte
	// Skipped are mutants that do not compile.
	Skipped int
}

// digest identifies the code and its mutants.
func (i Instrumented) digest() string {
	hash := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(i.Files)) {
		fmt.Fprintf(hash, "%s\n%d\n%s", filepath.Base(path), len(i.Files[path]), i.Files[path])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Instrument finds the mutants of a package and writes them into its files.
func Instrument(root, importPath string, packages map[string]listed) (Instrumented, error) {
	p := packages[importPath]
	without := map[string]map[int]bool{}
	for range maxCompileRounds {
		instrumented, wrong, err := instrument(root, p, packages, without)
		if err != nil || len(wrong) == 0 {
			return instrumented, err
		}
		for _, position := range wrong {
			if without[position.Filename] == nil {
				without[position.Filename] = map[int]bool{}
			}
			without[position.Filename][position.Line] = true
		}
	}
	return Instrumented{}, fmt.Errorf("instrumenting %s: it does not compile", importPath)
}

// maxCompileRounds bounds how often mutants on lines that do not compile are left out.
const maxCompileRounds = 20

func instrument(root string, p listed, packages map[string]listed, without map[string]map[int]bool) (Instrumented, []token.Position, error) {
	fset := token.NewFileSet()
	files := make([]*ast.File, 0, len(p.GoFiles))
	sources := map[string][]byte{}
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return Instrumented{}, nil, fmt.Errorf("reading the package: %w", err)
		}
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return Instrumented{}, nil, fmt.Errorf("parsing the package: %w", err)
		}
		sources[path] = source
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	imports := importerOf(fset, packages)
	if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, info); err != nil {
		return Instrumented{}, nil, fmt.Errorf("checking the types of %s: %w", p.ImportPath, err)
	}
	result := Instrumented{ImportPath: p.ImportPath, Dir: p.Dir, Files: map[string][]byte{}}
	for i, file := range files {
		path := filepath.Join(p.Dir, p.GoFiles[i])
		if ast.IsGenerated(file) {
			continue
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return Instrumented{}, nil, fmt.Errorf("naming %s: %w", path, err)
		}
		r := &rewriter{fset: fset, info: info, file: relative, source: sources[path], without: without[path], result: &result, failures: map[*ast.ReturnStmt]bool{}}
		r.rewrite(file)
		if len(r.edits) > 0 {
			result.Files[path] = r.apply()
		}
	}
	result.Files[filepath.Join(p.Dir, "zz_mutants.go")] = []byte("package " + p.Name + "\n" + helpers +
		fmt.Sprintf("\nvar mutantSeen [%d]atomic.Bool\n", len(result.Mutants)+1))
	return result, compileErrors(p, result.Files, packages), nil
}

// compileErrors type-checks the instrumented package.
func compileErrors(p listed, changed map[string][]byte, packages map[string]listed) []token.Position {
	fset := token.NewFileSet()
	var wrong []token.Position
	var files []*ast.File
	for _, name := range append(slices.Clone(p.GoFiles), "zz_mutants.go") {
		path := filepath.Join(p.Dir, name)
		var source any
		if content, ok := changed[path]; ok {
			source = content
		}
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			wrong = append(wrong, token.Position{Filename: path, Line: 1})
			continue
		}
		files = append(files, file)
	}
	config := types.Config{Importer: importerOf(fset, packages), Error: func(err error) {
		var typed types.Error
		if errors.As(err, &typed) {
			wrong = append(wrong, fset.Position(typed.Pos))
		}
	}}
	_, _ = config.Check(p.ImportPath, fset, files, nil)
	return wrong
}

// rewriter writes the mutants of one file.
type rewriter struct {
	fset    *token.FileSet
	info    *types.Info
	file    string
	source  []byte
	without map[int]bool
	result  *Instrumented
	// failures are the returns of an error that is not nil.
	failures map[*ast.ReturnStmt]bool

	function string
	depth    int
	edits    []edit
}

// edit inserts text at an offset, after removing some bytes.
type edit struct {
	at, remove int
	// order of the edits at one offset: closing brackets first, the innermost first; then opening ones, the
	// outermost first.
	order int
	text  string
}

func (r *rewriter) offset(pos token.Pos) int { return r.fset.Position(pos).Offset }

// mutant adds a mutant, and answers with its number. A line that did not compile has none.
func (r *rewriter) mutant(node ast.Node, operator string) (id int, ok bool) {
	line := r.fset.Position(node.Pos()).Line
	for at := line; at <= r.fset.Position(node.End()).Line; at++ {
		if r.without[at] {
			r.result.Skipped++
			return 0, false
		}
	}
	const longest = 100
	code := strings.Join(strings.Fields(string(r.source[r.offset(node.Pos()):r.offset(node.End())])), " ")
	if len(code) > longest {
		code = code[:longest] + "..."
	}
	id = len(r.result.Mutants) + 1
	r.result.Mutants = append(r.result.Mutants, Mutant{ID: id, File: r.file, Line: line, Function: r.function, Operator: operator, Code: code})
	return id, true
}

// wrap puts text around a node.
func (r *rewriter) wrap(node ast.Node, before, after string) {
	const beyondAnyDepth = 1 << 20
	r.depth++
	r.edits = append(r.edits,
		edit{at: r.offset(node.Pos()), order: r.depth, text: before},
		edit{at: r.offset(node.End()), order: -beyondAnyDepth + beyondAnyDepth/2 - r.depth, text: after})
}

// call wraps a node in a call of a helper, as a mutant.
func (r *rewriter) call(node ast.Node, operator, helper string) {
	if id, ok := r.mutant(node, operator); ok {
		r.wrap(node, fmt.Sprintf("%s(%d, ", helper, id), ")")
	}
}

func (r *rewriter) apply() []byte {
	slices.SortStableFunc(r.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	var out []byte
	at := 0
	for _, e := range r.edits {
		out = append(out, r.source[at:e.at]...)
		out = append(out, e.text...)
		at = max(at, e.at+e.remove)
	}
	return append(out, r.source[at:]...)
}

func (r *rewriter) rewrite(file *ast.File) {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.VAR {
				r.function = "package"
				r.walk(general)
			}
			continue
		}
		r.function = function.Name.Name
		r.walk(function.Body)
	}
}

// walk visits a node and those below it, outermost first.
func (r *rewriter) walk(root ast.Node) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST && n.Tok != token.TYPE
		case *ast.BlockStmt:
			r.statements(n.List)
		case *ast.CaseClause:
			r.statements(n.Body)
		case *ast.CommClause:
			r.statements(n.Body)
		case *ast.IfStmt:
			r.condition(n.Cond, true)
			r.noteFailures(n)
		case *ast.ForStmt:
			if n.Cond != nil {
				r.condition(n.Cond, false)
			}
		case *ast.SwitchStmt:
			r.cases(n)
		case *ast.ReturnStmt:
			r.results(n)
		case ast.Expr:
			return r.expression(n)
		}
		return true
	})
}

// noteFailures finds the returns of an error in the body of an if that has found it not to be nil.
func (r *rewriter) noteFailures(n *ast.IfStmt) {
	cond, ok := n.Cond.(*ast.BinaryExpr)
	if !ok || cond.Op != token.NEQ || !r.info.Types[cond.Y].IsNil() {
		return
	}
	failure, ok := cond.X.(*ast.Ident)
	if !ok {
		return
	}
	for _, statement := range n.Body.List {
		if returned, ok := statement.(*ast.ReturnStmt); ok && len(returned.Results) > 0 {
			last, ok := returned.Results[len(returned.Results)-1].(*ast.Ident)
			r.failures[returned] = ok && r.info.Uses[last] == r.info.Uses[failure]
		}
	}
}

// results mutates what is returned. Beside an error, the other values count for nothing.
func (r *rewriter) results(n *ast.ReturnStmt) {
	values := n.Results
	if last := len(values) - 1; last > 0 && (r.failures[n] || r.isNewError(values[last])) {
		values = values[last:]
	}
	for _, value := range values {
		r.value(value, "returned value")
	}
}

// isNewError reports whether an expression makes an error, which then is not nil.
func (r *rewriter) isNewError(expr ast.Expr) bool {
	call, ok := expr.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	function, ok := r.info.Uses[selector.Sel].(*types.Func)
	return ok && (function.FullName() == "fmt.Errorf" || function.FullName() == "errors.New")
}

// expression says whether to go on with the parts of an expression.
func (r *rewriter) expression(expr ast.Expr) bool {
	switch n := expr.(type) {
	case *ast.BinaryExpr:
		r.binary(n)
	case *ast.CompositeLit:
		r.fields(n)
	case *ast.CallExpr:
		r.with(n)
	}
	if r.info.Types[expr].Value == nil {
		return true
	}
	r.constant(expr)
	return false
}

// condition forces a condition, both ways if a loop does not become endless by it.
func (r *rewriter) condition(cond ast.Expr, bothWays bool) {
	if bothWays {
		r.call(cond, "always true", "mutantTrue")
	}
	r.call(cond, "never true", "mutantFalse")
}

func (r *rewriter) cases(n *ast.SwitchStmt) {
	if n.Tag != nil {
		return
	}
	for _, clause := range n.Body.List {
		if clause, ok := clause.(*ast.CaseClause); ok {
			for _, cond := range clause.List {
				r.condition(cond, true)
			}
		}
	}
}

// binary drops the parts of a condition, and shifts the bounds of comparisons.
func (r *rewriter) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.LAND:
		r.call(n.X, "condition dropped", "mutantTrue")
		r.call(n.Y, "condition dropped", "mutantTrue")
	case token.LOR:
		r.call(n.X, "condition dropped", "mutantFalse")
		r.call(n.Y, "condition dropped", "mutantFalse")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if r.info.Types[n].Value != nil {
			return
		}
		if id, ok := r.mutant(n, "bound shifted"); ok {
			helper := map[token.Token]string{token.LSS: "mutantLess", token.LEQ: "mutantLessEqual", token.GTR: "mutantGreater", token.GEQ: "mutantGreaterEqual"}[n.Op]
			r.wrap(n, fmt.Sprintf("%s(%d, ", helper, id), ")")
			r.edits = append(r.edits, edit{at: r.offset(n.OpPos), remove: len(n.Op.String()), text: ","})
		}
	}
}

// statements removes them one at a time.
func (r *rewriter) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch s := statement.(type) {
		case *ast.ExprStmt:
			if r.isUntested(s.X) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || isBlank(s) {
				continue
			}
		case *ast.DeferStmt, *ast.GoStmt, *ast.IncDecStmt, *ast.SendStmt:
		case *ast.BranchStmt:
			if s.Tok == token.FALLTHROUGH || s.Tok == token.GOTO {
				continue
			}
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		default:
			continue
		}
		if id, ok := r.mutant(statement, "statement removed"); ok {
			r.wrap(statement, fmt.Sprintf("if !mutantOn(%d) { ", id), " }")
		}
	}
}

// isUntested says whether a call only logs or panics.
func (r *rewriter) isUntested(expr ast.Expr) bool {
	call, ok := expr.(*ast.CallExpr)
	if !ok {
		return true
	}
	if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" {
		return true
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	receiver := r.info.Types[selector.X].Type
	return receiver != nil && strings.HasSuffix(types.Unalias(receiver).String(), "logr.Logger")
}

func isBlank(s *ast.AssignStmt) bool {
	return !slices.ContainsFunc(s.Lhs, func(left ast.Expr) bool {
		name, ok := left.(*ast.Ident)
		return !ok || name.Name != "_"
	})
}

// value replaces a value by the zero value, or a bool by its opposite.
func (r *rewriter) value(expr ast.Expr, what string) {
	known := r.info.Types[expr]
	if known.Type == nil || known.IsNil() {
		return
	}
	if _, isTuple := known.Type.(*types.Tuple); isTuple {
		return
	}
	basic, isBasic := known.Type.Underlying().(*types.Basic)
	if isBasic && basic.Info()&types.IsBoolean != 0 {
		r.call(expr, what+" negated", "mutantNot")
		return
	}
	if known.Value == nil && !isEmptyLiteral(expr) {
		r.call(expr, what+" zero", "mutantZero")
	}
}

func isEmptyLiteral(expr ast.Expr) bool {
	literal, ok := expr.(*ast.CompositeLit)
	return ok && len(literal.Elts) == 0
}

// fields leaves out the fields of a struct, and the entries of a map.
func (r *rewriter) fields(n *ast.CompositeLit) {
	for _, element := range n.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if literal, ok := pair.Value.(*ast.CompositeLit); ok && literal.Type == nil {
				continue
			}
			r.value(pair.Value, "field")
		}
	}
}

// with leaves out what a With function of an apply configuration sets.
func (r *rewriter) with(n *ast.CallExpr) {
	selector, ok := n.Fun.(*ast.SelectorExpr)
	if ok && strings.HasPrefix(selector.Sel.Name, "With") && len(n.Args) == 1 && !n.Ellipsis.IsValid() {
		r.value(n.Args[0], "argument")
	}
}

// constant replaces a number or a named constant by another one.
func (r *rewriter) constant(expr ast.Expr) {
	known := r.info.Types[expr]
	basic, ok := known.Type.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsUntyped != 0 {
		return
	}
	if r.isUntyped(expr) && !types.Identical(known.Type, defaultOf(known.Value)) {
		return // a helper would infer another type
	}
	_, isLiteral := expr.(*ast.BasicLit)
	isText := known.Value.Kind() == constant.String
	isSmall := known.Value.Kind() == constant.Int && (known.Value.String() == "0" || known.Value.String() == "1")
	if isText && isLiteral || isSmall || known.Value.Kind() == constant.Bool {
		return
	}
	if isText {
		r.call(expr, "other constant", "mutantText")
	} else {
		r.call(expr, "other constant", "mutantNumber")
	}
}

// isUntyped says whether a constant takes its type from where it stands.
func (r *rewriter) isUntyped(expr ast.Expr) bool {
	switch e := expr.(type) {
	case *ast.BasicLit:
		return true
	case *ast.ParenExpr:
		return r.isUntyped(e.X)
	case *ast.UnaryExpr:
		return r.isUntyped(e.X)
	case *ast.BinaryExpr:
		return r.isUntyped(e.X) && (e.Op == token.SHL || e.Op == token.SHR || r.isUntyped(e.Y))
	case *ast.SelectorExpr:
		return r.isUntyped(e.Sel)
	case *ast.Ident:
		object := r.info.Uses[e]
		if object == nil {
			return true
		}
		basic, ok := object.Type().(*types.Basic)
		return ok && basic.Info()&types.IsUntyped != 0
	default:
		return false
	}
}

// defaultOf is the type that Go gives to an untyped constant.
func defaultOf(value constant.Value) types.Type {
	switch value.Kind() {
	case constant.String:
		return types.Typ[types.String]
	case constant.Int:
		return types.Typ[types.Int]
	default:
		return types.Typ[types.Float64]
	}
}

// helpers turn mutants on. They are added to the package under test, with mutantSeen, which has one flag for each mutant:
// hot code pays one atomic read for telling that it is reached.
const helpers = `
import (
	"cmp"
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantActive, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantsReached  = os.Getenv("MUTANTS_REACHED")
)

func mutantOn(id int) bool {
	if mutantsReached != "" && !mutantSeen[id].Load() {
		mutantReach(id)
	}
	return id == mutantActive
}

func mutantReach(id int) {
	if mutantSeen[id].Swap(true) {
		return
	}
	file, err := os.OpenFile(mutantsReached, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strconv.Itoa(id) + "\n"); err != nil {
		panic(err)
	}
}

func mutantTrue(id int, v bool) bool  { return mutantOn(id) || v }
func mutantFalse(id int, v bool) bool { return !mutantOn(id) && v }
func mutantNot[T ~bool](id int, v T) T { return v != T(mutantOn(id)) }

func mutantZero[T any](id int, v T) T {
	if mutantOn(id) {
		var zero T
		return zero
	}
	return v
}

func mutantText[T ~string](id int, v T) T {
	if mutantOn(id) {
		return v + "-mutant"
	}
	return v
}

func mutantNumber[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64](id int, v T) T {
	if mutantOn(id) {
		return v + v/2 + 1
	}
	return v
}

func mutantLess[T cmp.Ordered](id int, a, b T) bool         { return a < b || mutantOn(id) && a == b }
func mutantLessEqual[T cmp.Ordered](id int, a, b T) bool    { return a < b || a == b && !mutantOn(id) }
func mutantGreater[T cmp.Ordered](id int, a, b T) bool      { return a > b || mutantOn(id) && a == b }
func mutantGreaterEqual[T cmp.Ordered](id int, a, b T) bool { return a > b || a == b && !mutantOn(id) }
`
