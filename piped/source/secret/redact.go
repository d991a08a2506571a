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

// minRedacted is the minimum length of a redacted text. Shorter texts occur in too many words.
const minRedacted = 4

const redacted = "[redacted]"

// Redactor redacts decrypted secrets in messages, because parsers and API servers quote invalid
// input. A nil Redactor changes nothing.
type Redactor struct {
	secrets  map[string]string
	replacer *strings.Replacer
}

// RedactorOf returns the Redactor of a tree from Renderer.Tree; nil if no secrets were decrypted
// for it.
func RedactorOf(tree fs.FS) *Redactor {
	if o, ok := tree.(*overlay); ok {
		return o.redactor
	}
	return nil
}

// NewRedactor returns a Redactor for secrets, by any name; nil if none is long enough. It
// redacts each secret and each of its lines of at least minRedacted bytes, both verbatim, in
// base64, and with the escapes of a quoted string.
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
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // the first match is replaced
	var pairs []string
	for _, form := range forms {
		pairs = append(pairs, form, redacted)
	}
	return &Redactor{secrets: secrets, replacer: strings.NewReplacer(pairs...)}
}

// Secrets returns the argument of NewRedactor, for creating another Redactor later. The caller
// must not change it.
func (r *Redactor) Secrets() map[string]string {
	if r == nil {
		return nil
	}
	return r.secrets
}

// Text returns a message with redacted secrets.
func (r *Redactor) Text(message string) string {
	if r == nil {
		return message
	}
	return r.replacer.Replace(message)
}

// Error returns err itself if its message contains no secret. Otherwise it returns an error of
// the same kind with the redacted message, which wraps nothing.
func (r *Redactor) Error(err error) error {
	if r == nil || err == nil {
		return err
	}
	text := r.Text(err.Error())
	if text == err.Error() {
		return err
	}
	return &deploy.Error{Kind: deploy.KindOf(err), Err: errors.New(text), Store: deploy.StoreUnavailable(err)}
}

// Log returns a log that redacts the secrets in messages to log.
func (r *Redactor) Log(log deploy.StageLog) deploy.StageLog {
	if r == nil {
		return log
	}
	return redactedLog{log, r}
}

// redactedLog is a stage log with redacted messages.
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
