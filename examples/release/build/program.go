package build

import (
	"context"
	"fmt"
	"time"
)

// Target is what a program runs on.
type Target struct{ OS, Arch string }

func (t Target) String() string { return t.OS + "/" + t.Arch }

// shortCommit is how many characters of the commit's hash a program shows. Git's own
// choice depends on how many objects a clone has.
const shortCommit = 12

// Program compiles the package pkg, such as ./piped/cmd/piped, into file. The result
// does not depend on the directory or on variables of the caller, nor on the kind of
// checkout and its tags, which the Go tool would record: the linker sets what it needs.
func (s Source) Program(ctx context.Context, pkg string, t Target, file string) error {
	flags := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s -X main.date=%s", s.Version, s.Commit[:shortCommit], s.Time.Format(time.RFC3339))
	env := []string{
		"GOOS=" + t.OS, "GOARCH=" + t.Arch, "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off", "GOENV=off", "GOFIPS140=off",
	}
	_, err := s.Go(ctx, env, "build", "-buildvcs=false", "-ldflags", flags, "-o", file, pkg)
	return err
}
