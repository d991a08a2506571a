package tutorial

import (
	"regexp"
	"strings"
)

// step is a file to write, or a command to run with what it prints.
type step struct {
	line            int
	file, content   string
	command, output string
}

// parsePage returns the steps of a page in their order: YAML blocks whose first line is
// a comment with the name of a file, and the commands of console blocks.
func parsePage(text string) (steps []step) {
	language, fenced := "", false
	for i, line := range strings.Split(text, "\n") {
		if rest, fence := strings.CutPrefix(line, "```"); fence {
			language, fenced = rest, !fenced
			if fenced && language == "yaml" {
				steps = append(steps, step{line: i + 2})
			}
			continue
		}
		if !fenced {
			continue
		}
		command, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case language == "console" && prompt:
			steps = append(steps, step{line: i + 1, command: command})
		case language == "console":
			steps[len(steps)-1].output += line + "\n"
		case language == "yaml" && steps[len(steps)-1].file == "":
			steps[len(steps)-1].file = strings.TrimPrefix(line, "# ")
		case language == "yaml":
			steps[len(steps)-1].content += line + "\n"
		}
	}
	return steps
}

// varying is what differs from run to run, with what stands for it.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz24-9]{6,10}(-[bcdfghjklmnpqrstvwxz24-9]{5})?\b`), "-NAME"},
	{regexp.MustCompile(`\b[0-9a-f]{7,40}\b`), "HASH"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|µs|s|m|h))+\b`), "DURATION"},
	{regexp.MustCompile(` +`), " "},
	{regexp.MustCompile(` \n`), "\n"},
}

// general returns text with what varies replaced.
func general(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	return strings.TrimSpace(text)
}

// matches reports whether a command printed what the page shows. Three dots stand for
// any text in a line, and alone on a line for any lines.
func matches(shown, printed string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(general(shown) + "\n") {
		if strings.TrimSpace(line) == "..." {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`))
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(general(printed) + "\n")
}
