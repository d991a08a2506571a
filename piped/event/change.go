package event

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/event/replace"
)

// IDTrailer is the key of the commit trailer that contains the event's ID.
const IDTrailer = "Piped-Event-Id"

// maxFile limits the size of changed files, in bytes.
const maxFile = 4 << 20

// apply returns the new content of the files that rules change for e, by path. Errors are
// of kind deploy.Invalid and name the rule's file, the changed file and the field.
func apply(s *ruleSet, rules []rule, e deploy.RegisteredEvent) (map[string][]byte, error) {
	now, was := map[string][]byte{}, map[string][]byte{}
	for _, r := range rules {
		for _, p := range r.Handler.Config.Replacements {
			name := path.Join(r.dir, p.File)
			if _, read := now[name]; !read {
				data, err := readFile(s.files, name)
				if err != nil {
					return nil, deploy.Errorf(deploy.Invalid, "%s: %s: %w", r.file, name, err)
				}
				now[name], was[name] = data, data
			}
			data, err := replace.Apply(now[name], p, e.Data)
			if err != nil {
				return nil, deploy.Errorf(deploy.Invalid, "%s: %s: %w", r.file, name, err)
			}
			now[name] = data
		}
	}
	maps.DeleteFunc(now, func(name string, data []byte) bool { return string(data) == string(was[name]) })
	return now, nil
}

// readFile reads a file. It rejects paths with symbolic links, which could point anywhere in
// the repository.
func readFile(files fs.FS, name string) ([]byte, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, errors.New("the path does not name a file")
	}
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		info, err := fs.Lstat(files, name[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, errors.New("there is no such file; a replacement only changes existing files")
		case err != nil:
			return nil, err
		case info.Mode()&fs.ModeSymlink != 0:
			return nil, fmt.Errorf("%s is a symbolic link; name the file that it points to", name[:i])
		case i == len(name) && info.Size() > maxFile:
			return nil, fmt.Errorf("it has %d bytes, more than the limit of %d", info.Size(), maxFile)
		}
	}
	return fs.ReadFile(files, name)
}

// message returns the commit message for e: the message of the first rule that has one,
// followed by the trailers.
func message(rules []rule, e deploy.RegisteredEvent) (string, error) {
	text := fmt.Sprintf("Replace values with %q set by Event %q", e.Data, e.Name)
	for _, r := range rules {
		if r.Handler.Config.CommitMessage == "" {
			continue
		}
		var b strings.Builder
		t, err := template.New("").Parse(r.Handler.Config.CommitMessage)
		if err == nil {
			err = t.Execute(&b, struct{ Value, EventName string }{e.Data, e.Name})
		}
		if err != nil {
			return "", deploy.Errorf(deploy.Invalid, "%s: commitMessage: %w", r.file, err)
		}
		if strings.TrimSpace(b.String()) != "" {
			text = strings.TrimSpace(b.String())
		}
		break
	}
	return strings.ReplaceAll(text+"\n\n"+strings.Join(trailers(e), "\n"), "\x00", ""), nil
}

// maxTitle limits the title of a pull request, in characters; hosts accept up to 255.
const maxTitle = 250

// splitTitle splits a commit message into title and body of a pull request. A title that is
// too long is truncated and repeated in the body.
func splitTitle(message string) (title, body string) {
	title, body, _ = strings.Cut(message, "\n")
	if runes := []rune(title); len(runes) > maxTitle {
		title, body = string(runes[:maxTitle])+"…", message
	}
	return title, strings.TrimSpace(body)
}

// trailers returns the lines of the event's contexts, the commit that caused it, and its ID.
func trailers(e deploy.RegisteredEvent) []string {
	var out []string
	add := func(key, value string) {
		if value != "" {
			out = append(out, key+": "+strings.Join(strings.Fields(value), " "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.Contexts)) {
		add(key, e.Contexts[key])
	}
	add(deploy.TraceTrailer, e.Trigger.Hash)
	add(IDTrailer, e.ID)
	return out
}

var notInBranch = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// branchOf returns the name of the branch for an event's pull request.
func branchOf(e deploy.RegisteredEvent) string {
	name := strings.Trim(notInBranch.ReplaceAllString(e.Name, "-"), "-")
	if name == "" {
		name = "event"
	}
	return name + "-" + e.ID[:min(8, len(e.ID))]
}
