package signature

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// commit contains the parts of a commit object that concern its signature.
type commit struct {
	payload   []byte // the signed data: the object without the signature
	signature string // "" when there is none
	at        time.Time
}

// errSeveral is the error for several signatures: it is not clear which one counts. git
// rejects them, too.
var errSeveral = errors.New("it bears several signatures, where one is expected")

// parse reads a commit object as git does. The gpgsig header with its continuation lines is
// the signature. The gpgsig-sha256 header signs the same commit under another hash and belongs
// neither to the payload nor to the signature.
func parse(raw []byte) (commit, error) {
	var c commit
	var signature strings.Builder
	const none, signed, dropped = 0, 1, 2
	in, found := none, 0
	for rest := raw; len(rest) > 0; {
		if rest[0] == '\n' { // the message
			c.payload = append(c.payload, rest...)
			break
		}
		var line []byte
		line, rest = cut(rest)
		switch continued := line[0] == ' '; {
		case continued && in == signed:
			signature.Write(line[1:])
			continue
		case continued && in == dropped:
			continue
		case !continued:
			in = none
		}
		if text, ok := bytes.CutPrefix(line, []byte("gpgsig ")); ok {
			in = signed
			found++
			signature.Write(text)
			continue
		}
		if bytes.HasPrefix(line, []byte("gpgsig")) {
			in = dropped
			continue
		}
		if text, ok := bytes.CutPrefix(line, []byte("committer ")); ok {
			at, err := timeOf(string(text))
			if err != nil || !c.at.IsZero() {
				return c, fmt.Errorf("its committer line %q is not one", strings.TrimSpace(string(text)))
			}
			c.at = at
		}
		c.payload = append(c.payload, line...)
	}
	switch {
	case found > 1:
		return c, errSeveral
	case c.at.IsZero():
		return c, errors.New("it does not say when it was made")
	}
	c.signature = signature.String()
	return c, nil
}

// cut returns the first line of text, with its line end, and the rest.
func cut(text []byte) (line, rest []byte) {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1], text[i+1:]
	}
	return text, nil
}

// timeOf parses the time of a line "Name <address> 1700000000 +0100".
func timeOf(line string) (time.Time, error) {
	_, when, ok := strings.Cut(line[strings.LastIndexByte(line, '>')+1:], " ")
	if !ok {
		return time.Time{}, errors.New("no time")
	}
	seconds, _, _ := strings.Cut(when, " ")
	n, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
	return time.Unix(n, 0).UTC(), err
}
