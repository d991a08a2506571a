package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var rpc = regexp.MustCompile(`^  rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\)`)

// methodTable returns the methods of a service of a .proto file with their comments.
func methodTable(file, service string) (string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	_, body, ok := strings.Cut(string(source), "\nservice "+service+" {\n")
	if !ok {
		return "", fmt.Errorf("%s has no service %s", file, service)
	}
	body, _, _ = strings.Cut(body, "\n}\n")
	var rows [][]string
	var doc []string
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\n")
		switch m := rpc.FindStringSubmatch(line); {
		case m != nil:
			answer := "`" + m[5] + "`"
			if m[4] != "" {
				answer = "stream of " + answer
			}
			rows = append(rows, []string{"`" + m[1] + "`", "`" + m[3] + "`", answer, strings.Join(doc, " ")})
			doc = nil
		case strings.HasPrefix(strings.TrimSpace(line), "//"):
			doc = append(doc, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "//")))
		default:
			doc = nil
		}
	}
	return table([]string{"method", "request", "answer", "does"}, rows), nil
}
