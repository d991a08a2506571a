package git

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// advertiser lists the references of a server: go-git's HTTP session, our sshSession.
type advertiser interface {
	AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
	io.Closer
}

// connection is a connection to a server that speaks the pack protocol.
type connection[T advertiser] struct {
	server       T
	capabilities *capability.List // set by head
}

// head returns the commit of a branch. It must be called before any other request.
func (c *connection[T]) head(ctx context.Context, name plumbing.ReferenceName) (plumbing.Hash, error) {
	refs, err := c.server.AdvertisedReferencesContext(onlyRef(ctx, name))
	if err != nil {
		return plumbing.ZeroHash, err
	}
	c.capabilities = refs.Capabilities
	return refs.References[name.String()], nil
}

// Close closes the connection.
func (c *connection[T]) Close() error { return c.server.Close() }

// uploader is a server that sends packs (git-upload-pack).
type uploader interface {
	advertiser
	UploadPack(context.Context, *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
}

// uploadSession fetches from a server. It does not use go-git's Remote.Fetch, which chooses
// its transport from a global registry.
type uploadSession struct{ connection[uploader] }

func newUploadSession(server uploader) *uploadSession {
	return &uploadSession{connection[uploader]{server: server}}
}

func (s *uploadSession) fetch(w *watchdog, want plumbing.Hash, into *objects) error {
	req := packp.NewUploadPackRequestFromCapabilities(s.capabilities)
	req.Wants = []plumbing.Hash{want}
	req.Haves = into.haves()
	_, err := s.receive(w, req, into, into.limits.pack)
	return err
}

// receive stores the pack of a response, at most limit bytes. It returns the commits that the
// server sent without their parents because the request limited the depth.
func (s *uploadSession) receive(w *watchdog, req *packp.UploadPackRequest, into *objects, limit int64) ([]plumbing.Hash, error) {
	res, err := s.server.UploadPack(w, req)
	if err != nil {
		return nil, err
	}
	defer res.Close()
	var pack io.Reader = &touchingReader{r: res, w: w, left: limit}
	if req.Capabilities.Supports(capability.Sideband64k) {
		pack = sideband.NewDemuxer(sideband.Sideband64k, pack)
	} else if req.Capabilities.Supports(capability.Sideband) {
		pack = sideband.NewDemuxer(sideband.Sideband, pack)
	}
	return res.Shallows, into.addPack(w, func(to io.Writer) error {
		n, err := io.Copy(to, pack)
		w.rest() // indexing is our own work
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("receive pack: %w", err)
		}
		return nil
	})
}

// touchingReader touches the watchdog on every read with data. It fails after left bytes.
type touchingReader struct {
	r    io.Reader
	w    *watchdog
	left int64
}

var errTooLarge = fmt.Errorf("the remote sent more than the limit: %w", ErrBeyond)

func (t *touchingReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.w.touch()
	}
	if t.left -= int64(n); t.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// httpDialer speaks smart HTTP with its own pool of connections.
type httpDialer struct {
	address   address
	auth      *githttp.BasicAuth
	transport *http.Transport
}

func newHTTPDialer(a address, auth Auth) *httpDialer {
	d := &httpDialer{address: a, transport: http.DefaultTransport.(*http.Transport).Clone()}
	user, password := a.user, a.password
	if user == "" {
		user = auth.Username
	}
	if password == "" {
		password = auth.Password
	}
	if user != "" || password != "" {
		d.auth = &githttp.BasicAuth{Username: user, Password: string(password)}
	}
	return d
}

func (d *httpDialer) dial(context.Context) (session, error) {
	ep, auth := d.endpoint()
	server, err := githttp.NewClient(d.client()).NewUploadPackSession(ep, auth)
	return newUploadSession(server), err
}

// endpoint returns a copy of the address, since go-git changes it after a redirect, and the
// credentials, nil if there are none.
func (d *httpDialer) endpoint() (*transport.Endpoint, transport.AuthMethod) {
	ep := *d.address.endpoint
	if d.auth == nil {
		return &ep, nil
	}
	return &ep, d.auth
}

// client returns a client that refuses redirects to other hosts if there are credentials:
// go-git would send the credentials there.
func (d *httpDialer) client() *http.Client {
	return &http.Client{Transport: boundedTransport{d.transport}, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		first := via[0].URL
		switch {
		case len(via) > maxFileRedirects:
			return fmt.Errorf("it redirects more than %d times", maxFileRedirects)
		case first.Scheme == "https" && next.URL.Scheme != "https":
			return fmt.Errorf("it redirects from https to %s", next.URL.Scheme)
		case d.auth != nil && next.URL.Host != first.Host:
			return fmt.Errorf("it redirects to %s, which the credentials are not for; name the repository there", next.URL.Host)
		}
		return nil
	}}
}

func (d *httpDialer) close() error {
	d.transport.CloseIdleConnections()
	return nil
}
