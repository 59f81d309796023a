// Command image builds container images without a container engine: one layer of files
// on an empty base, reproducible byte for byte.
//
//	image build      the project's image, for each platform, with its SBOM
//	image release    everything that a release contains, with the images
//	image sign       signatures of the files of a release
//	image chart      the Helm chart of a version, as a package
//	image pack       an image of given files, for tests
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage:
  image build [flags]                    build the project's image (image build -h lists the flags)
  image release [flags]                  build everything that a release holds (image release -h)
  image sign [flags] FOLDER              sign the files of a release (image sign -h)
  image chart [flags]                    package the Helm chart of a version (image chart -h)
  image pack [flags] PATH=FILE...        pack files into an image for tests
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "image: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("nothing to do\n" + usage)
	}
	switch args[0] {
	case "build":
		return runBuild(ctx, args[1:], stdout, stderr)
	case "release":
		return runRelease(ctx, args[1:], stdout, stderr)
	case "sign":
		return runSign(ctx, args[1:], stdout, stderr)
	case "chart":
		return runChart(args[1:], stderr)
	case "pack":
		return runPack(args[1:], stderr)
	default:
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
}

func runBuild(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("image build", flag.ContinueOnError)
	flags.SetOutput(stderr)
	source := flags.String("source", "../..", "Folder of the project's sources.")
	out := flags.String("out", "../../bin/image", "Folder to write to; an earlier image in it is replaced.")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "Platforms, separated by commas.")
	tag := flags.String("tag", "", "Name of the image in the archives; left out, that of the project with the version.")
	push := flags.String("push", "", "Name to push the image to, such as ghcr.io/you/fixpoint:v1; credentials are read from the docker configuration.")
	version := flags.String("version", "", "Version to stamp; left out, what git describes.")
	commit := flags.String("commit", "", "Commit to stamp; left out, the one that is checked out.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: every setting is a flag, see -h", flags.Arg(0))
	}
	wanted, err := parsePlatforms(*platforms)
	if err != nil {
		return err
	}
	stamp, err := readStamp(ctx, *source, *version, *commit)
	if err != nil {
		return err
	}
	if *tag == "" {
		*tag = repository + ":" + stamp.version
	}
	work, err := os.MkdirTemp("", "fixpoint-image-")
	if err != nil {
		return fmt.Errorf("creating a folder to build in: %w", err)
	}
	defer os.RemoveAll(work)
	images, err := buildImages(ctx, *source, work, wanted, stamp)
	if err != nil {
		return err
	}
	if err := writeImages(*out, *tag, images); err != nil {
		return err
	}
	if err := describe(stdout, *out, images); err != nil {
		return err
	}
	if *push == "" {
		return nil
	}
	return pushImages(ctx, *push, images, stdout)
}

func runPack(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("image pack", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "", "Archive to write.")
	var names, entrypoint, env stringList
	flags.Var(&names, "name", "Name of the image; may be given several times.")
	flags.Var(&entrypoint, "entrypoint", "Word of the entrypoint; may be given several times.")
	flags.Var(&env, "env", "NAME=VALUE in the image's environment; may be given several times.")
	user := flags.String("user", nonroot, "User and group that the image runs as.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || len(names) == 0 || flags.NArg() == 0 {
		return errors.New("-out, -name and at least one PATH=FILE are needed")
	}
	var files []file
	for _, arg := range flags.Args() {
		path, from, found := strings.Cut(arg, "=")
		if !found || !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%q: give /path/in/image=file", arg)
		}
		files = append(files, file{path: path, from: from, mode: 0o755})
	}
	return packImage(*out, names, files, settings{user: *user, entrypoint: entrypoint, env: env})
}

// stringList is a flag that may be given several times.
type stringList []string

func (l *stringList) String() string { return strings.Join(*l, ",") }

func (l *stringList) Set(value string) error {
	*l = append(*l, value)
	return nil
}
