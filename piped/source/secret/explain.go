package secret

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/Masterminds/sprig/v3"

	"github.com/c785c783/piped/piped/deploy"
)

var undefined = regexp.MustCompile(`function "(\w+)" not defined$`)

// explainParse returns the error for a template that cannot be parsed. It may quote the
// template, which is in Git, but none of the data.
func explainParse(file string, err error) error {
	line, text := position(file, err)
	if name := undefined.FindStringSubmatch(text); name != nil {
		if _, known := sprig.TxtFuncMap()[name[1]]; known {
			text = "the function " + name[1] + " is not allowed: what a template makes may depend on its arguments only"
		}
	}
	return deploy.Errorf(deploy.Invalid, "%s:%d: %s", file, line, text)
}

// position splits an error of text/template into the line number and the message.
func position(file string, err error) (line int, text string) {
	rest := strings.TrimPrefix(err.Error(), "template: "+file+":")
	digits, text, _ := strings.Cut(rest, ":")
	line, _ = strconv.Atoi(digits)
	return line, strings.TrimSpace(text)
}

// Errors of text/template. The harmless ones quote only the template.
var (
	harmless = regexp.MustCompile(`(?s)^\d+: executing .* at <.*>: (` + strings.Join([]string{
		`map has no entry for key "[^"]*"`,
		`can't evaluate field \w+ in type [\w.\[\]{}*]+`,
		`wrong number of args for \w+: want (at least )?\d+ got \d+`,
		`wrong type for value; expected [\w.\[\]{}*]+; got [\w.\[\]{}*]+`,
		`invalid value; expected [\w.\[\]{}*]+`,
		`nil data; no entry for key "[^"]*"`,
		`template "[^"]*" not defined`,
		`exceeded maximum template depth \(\d+\)`,
	}, "|") + `)$`)
	// quoting matches messages that may quote the data.
	quoting = regexp.MustCompile(`>: (range can't iterate over|if/with can't use|can't use) `)
	failed  = regexp.MustCompile(`>: error calling (\w+): `)
	missing = regexp.MustCompile(`(?s)^\d+: executing .* at <[$]?\.(encryptedSecrets|attachment)\.(\S+?)>: map has no entry for key`)
)

const notShown = " (why is not shown: it may hold a secret)"

// explainExec returns the error for a template whose execution failed. It quotes data only if
// there are no secrets.
func (d data) explainExec(file string, err error) error {
	line, text := position(file, err)
	limited := exceeded(err)
	name, call := missing.FindStringSubmatch(text), failed.FindStringSubmatch(text)
	hide := len(d.secrets) > 0
	switch {
	case limited != nil:
		text = limited.Error()
	case hide && call != nil:
		text = "the function " + call[1] + " failed" + notShown
	case hide && quoting.MatchString(text):
		text = "the template cannot be rendered" + notShown
	case name != nil:
		text = d.absent(name[1], name[2])
	case !hide:
		_, text, _ = strings.Cut(text, ": ") // the column
	case harmless.MatchString(text):
		text = harmless.FindStringSubmatch(text)[1]
	default:
		text = "the template cannot be rendered" + notShown
	}
	if line == 0 { // exceeding the limit of the output has no position
		return deploy.Errorf(deploy.Invalid, "%s: %s", file, text)
	}
	return deploy.Errorf(deploy.Invalid, "%s:%d: %s", file, line, text)
}

// absent returns a message that a data root does not have a name, with the existing names.
func (d data) absent(root, name string) string {
	field, have := "spec.encryption.encryptedSecrets", sortedKeys(d.secrets)
	if root == "attachment" {
		field, have = "spec.attachment.sources", sortedKeys(d.attachments)
	}
	text := "there is no " + name + " in " + field
	if len(have) > 0 {
		text += ", only " + strings.Join(have, ", ")
	}
	if root == "attachment" {
		text += "; decryption targets see only sources that are not decryption targets themselves"
	}
	return text
}

// exceeded returns the error of the exceeded meter limit that err wraps, or nil.
func exceeded(err error) error {
	for _, limit := range []error{errBudget, errDepth} {
		if errors.Is(err, limit) {
			return limit
		}
	}
	return nil
}
