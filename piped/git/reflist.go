package git

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/bounded"
)

// maxListing bounds the bytes of a list of references: a million of them.
const maxListing = 64 << 20

// maxReport bounds the bytes that are read of a server's answer to a push, and of an answer that is
// an error.
const maxReport = 1 << 20

// onlyKey is the key of the context of onlyRef.
type onlyKey struct{}

// onlyRef returns a context in which listings of references contain no more than that one and the
// first, which has the capabilities. A remote may have a million others.
func onlyRef(ctx context.Context, name plumbing.ReferenceName) context.Context {
	return context.WithValue(ctx, onlyKey{}, name.String())
}

// refList reads the references that a server lists, as lines with their length (pkt-line), and
// fails after left bytes. It reads no more of the server than it returns or leaves out.
type refList struct {
	r    io.Reader
	left int64
	only string // the reference to return; "" for all
	rest []byte // of the line, still to be returned
	raw  bool   // what follows are no such lines: the decoder reports that
	line [65536]byte
}

// newRefList returns a reader of the references that ctx asks for.
func newRefList(ctx context.Context, r io.Reader) *refList {
	only, _ := ctx.Value(onlyKey{}).(string)
	return &refList{r: r, left: maxListing, only: only}
}

// Read implements io.Reader.
func (l *refList) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.raw {
			n, err := l.r.Read(p)
			return n, l.spend(n, err)
		}
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next reads a line into rest, unless it is left out.
func (l *refList) next() error {
	head := l.line[:4]
	n, err := io.ReadFull(l.r, head)
	if err := l.spend(n, err); err != nil {
		return err
	}
	size, err := strconv.ParseUint(string(head), 16, 16)
	if l.raw = err != nil; l.raw || size <= 4 { // up to 4 are marks, such as the end, without text
		l.rest = head
		return nil
	}
	text := l.line[4:size]
	n, err = io.ReadFull(l.r, text)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err := l.spend(n, err); err != nil {
		return err
	}
	if l.wanted(string(text)) {
		l.rest = l.line[:size]
	}
	return nil
}

// wanted reports whether a line is returned: every line that is not just a hash and a name, too.
func (l *refList) wanted(text string) bool {
	hash, name, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	return l.only == "" || !plumbing.IsHash(hash) || strings.ContainsRune(name, 0) || name == l.only || name == l.only+"^{}"
}

func (l *refList) spend(n int, err error) error {
	if l.left -= int64(n); l.left < 0 {
		return fmt.Errorf("the remote lists too many references: %w", errTooLarge)
	}
	return err
}

// boundedTransport limits what is read of a server's answers, which go-git reads whole, except for
// packs, which have limits of their own.
type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return res, err
	}
	switch {
	case res.StatusCode != http.StatusOK:
		res.Body = replaced(res.Body, io.LimitReader(res.Body, maxReport))
	case strings.HasSuffix(req.URL.Path, "/info/refs"):
		res.Body = replaced(res.Body, newRefList(req.Context(), bufio.NewReader(res.Body)))
	case strings.HasSuffix(req.URL.Path, "/git-receive-pack"):
		res.Body = bounded.Body(res.Body, maxReport)
	}
	return res, nil
}

// replaced returns a body that is read from r.
func replaced(body io.Closer, r io.Reader) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{r, body}
}
