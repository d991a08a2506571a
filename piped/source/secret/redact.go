package secret

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// minRedacted is how long a text is at least that is taken out of messages:
// shorter ones are part of too many words.
const minRedacted = 4

const redacted = "[redacted]"

// Redactor takes decrypted secrets out of messages about what was made of them:
// parsers and API servers quote what they refuse. A nil Redactor changes nothing.
type Redactor struct {
	secrets  map[string]string
	replacer *strings.Replacer
}

// RedactorOf returns the Redactor for what Tree returned; nil when no secrets
// were decrypted for it.
func RedactorOf(tree fs.FS) *Redactor {
	if o, ok := tree.(*overlay); ok {
		return o.redactor
	}
	return nil
}

// NewRedactor returns the Redactor for texts, under whatever names; nil when none is
// long enough to be found. It knows each as it is, its longer lines, and both in base64
// and as they stand between quotes.
func NewRedactor(secrets map[string]string) *Redactor {
	var forms []string
	for _, text := range secrets {
		for _, part := range append(strings.Split(text, "\n"), text, strings.TrimSpace(text)) {
			if len(strings.TrimSpace(part)) < minRedacted {
				continue
			}
			quoted := strconv.Quote(part)
			forms = append(forms, part, quoted[1:len(quoted)-1], base64.StdEncoding.EncodeToString([]byte(part)))
		}
	}
	if len(forms) == 0 {
		return nil
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // the first that fits is taken
	var pairs []string
	for _, form := range forms {
		pairs = append(pairs, form, redacted)
	}
	return &Redactor{secrets: secrets, replacer: strings.NewReplacer(pairs...)}
}

// Secrets returns what NewRedactor was given, for a caller that makes another one later; it
// is not to be changed.
func (r *Redactor) Secrets() map[string]string {
	if r == nil {
		return nil
	}
	return r.secrets
}

// Text returns a message without the secrets.
func (r *Redactor) Text(message string) string {
	if r == nil {
		return message
	}
	return r.replacer.Replace(message)
}

// Error returns err itself when its message shows no secret, and else an error of
// its kind with the rest of the message, in which nothing is wrapped.
func (r *Redactor) Error(err error) error {
	if r == nil || err == nil {
		return err
	}
	text := r.Text(err.Error())
	if text == err.Error() {
		return err
	}
	return &deploy.Error{Kind: deploy.KindOf(err), Err: errors.New(text)}
}

// Log returns log without the secrets.
func (r *Redactor) Log(log deploy.StageLog) deploy.StageLog {
	if r == nil {
		return log
	}
	return redactedLog{log, r}
}

// redactedLog is a stage's log without the secrets.
type redactedLog struct {
	log      deploy.StageLog
	redactor *Redactor
}

func (l redactedLog) Infof(format string, args ...any) {
	l.log.Infof("%s", l.redactor.Text(fmt.Sprintf(format, args...)))
}

func (l redactedLog) Successf(format string, args ...any) {
	l.log.Successf("%s", l.redactor.Text(fmt.Sprintf(format, args...)))
}

func (l redactedLog) Errorf(format string, args ...any) {
	l.log.Errorf("%s", l.redactor.Text(fmt.Sprintf(format, args...)))
}
