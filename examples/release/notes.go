package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/c785c783/piped/examples/release/build"
)

// general is the area of commits whose subject names none.
const general = "general"

// area matches the area that begins the subject of a commit: "store: add retention".
var area = regexp.MustCompile(`^([a-z][a-z0-9/, -]*): (.+)$`)

// releaseNotes lists the commits since the release before by their area, oldest first.
func releaseNotes(ctx context.Context, source build.Source) ([]byte, error) {
	since, err := releaseBefore(ctx, source)
	if err != nil {
		return nil, err
	}
	commits, beginning := "HEAD", "the beginning"
	if since != "" {
		commits, beginning = since+"..HEAD", since
	}
	log, err := source.Git(ctx, "log", "--reverse", "--no-merges", "--abbrev=12", "--format=%h %s", commits)
	if err != nil {
		return nil, err
	}
	areas, count := map[string][]string{}, 0
	for line := range strings.Lines(log) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		in := general
		if m := area.FindStringSubmatch(subject); m != nil {
			in, subject = m[1], m[2]
		}
		areas[in] = append(areas[in], fmt.Sprintf("* %s (%s)", strings.ReplaceAll(subject, "<", "&lt;"), hash))
		count++
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# piped %s\n\n%d commits since %s. What an upgrade may change: docs/releases.md.\n", source.Version, count, beginning)
	for _, name := range slices.Sorted(maps.Keys(areas)) {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n", name, strings.Join(areas[name], "\n"))
	}
	return out.Bytes(), nil
}

// releaseBefore returns the last release that the commit contains, "" if there is none.
// Before a final release that is the final one before, so that its notes contain those of
// its candidates.
func releaseBefore(ctx context.Context, source build.Source) (string, error) {
	tags, err := source.Git(ctx, "tag", "--merged", "HEAD", "--sort=-v:refname", "--list", "v[0-9]*")
	if err != nil {
		return "", err
	}
	final := !strings.Contains(source.Version, "-")
	for _, tag := range strings.Fields(tags) {
		if checkVersion(tag) == nil && tag != source.Version && !(final && strings.Contains(tag, "-")) {
			return tag, nil
		}
	}
	return "", nil
}
