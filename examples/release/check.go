package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/c785c783/piped/examples/release/build"
)

// checkVersion refuses what is no version of a release. What follows a plus sign would
// not be possible in the tag of an image.
func checkVersion(version string) error {
	rest, found := strings.CutPrefix(version, "v")
	v, err := semver.StrictNewVersion(rest)
	if !found || err != nil || v.Metadata() != "" {
		return fmt.Errorf("%q is no version: write it as v1.2.3 or v1.2.3-rc.1", version)
	}
	return nil
}

// checkCheckout refuses a work tree that is not the commit of the release.
func checkCheckout(ctx context.Context, source build.Source) error {
	changed, err := source.Git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the work tree differs from its commit: commit or remove\n%s", changed)
	}
	if shallow, err := source.Git(ctx, "rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		return errors.Join(err, errors.New("the release notes need the history: git fetch --unshallow --tags"))
	}
	tagged, err := source.Git(ctx, "for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags/"+source.Version)
	if err != nil {
		return err
	}
	if tagged != "" && !strings.Contains(tagged, source.Commit) {
		return fmt.Errorf("the tag %s is of another commit: check that one out, or choose another version", source.Version)
	}
	return nil
}
