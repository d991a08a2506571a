package git

import "strings"

// trailer returns the value of a trailer of a commit's message: of a line
// "key: value" in the message's last paragraph; "" when there is none. Of several
// the last counts; the case of keys does not.
func trailer(message, key string) (value string) {
	message = strings.TrimSpace(strings.ReplaceAll(message, "\r\n", "\n"))
	paragraphs := strings.Split(message, "\n\n")
	if len(paragraphs) == 1 {
		return "" // the subject
	}
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.EqualFold(strings.TrimSpace(k), key) {
			value = strings.TrimSpace(v)
		}
	}
	return value
}
