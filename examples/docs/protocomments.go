package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// protoComments are the comments of the .proto files by full name: of services, methods,
// messages, fields, enums, and of enum values below the name of their enum. Go's descriptors
// do not contain comments.
type protoComments map[string]string

// readProtoComments reads the .proto files below a directory. It relies on the form that
// `buf format` gives them.
func readProtoComments(dir string) (protoComments, error) {
	files, err := findFiles(dir, ".proto")
	if err != nil {
		return nil, err
	}
	comments := protoComments{}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		comments.read(source)
	}
	return comments, nil
}

var (
	protoPackage = regexp.MustCompile(`^package ([\w.]+);$`)
	protoBlock   = regexp.MustCompile(`^(?:message|enum|service|oneof) (\w+) \{(\})?$`)
	protoMethod  = regexp.MustCompile(`^rpc (\w+)\(`)
	protoField   = regexp.MustCompile(`^(?:[\w.<>, ]+ )?(\w+) = \d+`)
)

// read adds the comments of one file.
func (c protoComments) read(source []byte) {
	var scope, comment []string
	for lines := bufio.NewScanner(bytes.NewReader(source)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if text, ok := strings.CutPrefix(line, "//"); ok {
			comment = append(comment, strings.TrimPrefix(text, " "))
			continue
		}
		note := func(name string) { c[strings.Join(append(slices.Clone(scope), name), ".")] = joinComment(comment) }
		if m := protoPackage.FindStringSubmatch(line); m != nil {
			scope = []string{m[1]}
		} else if m := protoBlock.FindStringSubmatch(line); m != nil {
			note(m[1])
			if m[2] == "" {
				scope = append(scope, m[1])
			}
		} else if line == "}" {
			scope = scope[:len(scope)-1]
		} else if m := protoMethod.FindStringSubmatch(line); m != nil {
			note(m[1])
		} else if m := protoField.FindStringSubmatch(line); m != nil {
			note(m[1])
		}
		comment = nil
	}
}

// joinComment joins the lines of each paragraph; an empty line separates two.
func joinComment(lines []string) string {
	return strings.NewReplacer("\n\n", "\n\n", "\n", " ").Replace(strings.Join(lines, "\n"))
}

// of returns the comment of a name in Markdown.
func (c protoComments) of(name string) (string, error) {
	text := c[name]
	if text == "" {
		return "", fmt.Errorf("%s has no comment in its .proto file", name)
	}
	return text, nil
}
