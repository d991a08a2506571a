package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/net/proxy"
)

// sshDialer runs git's services on an SSH server. go-git's SSH transport
// cannot be cancelled during the handshake and chooses host key algorithms
// without regard to known_hosts.
type sshDialer struct {
	host, port, path string
	user             string
	password         Secret
	signer           ssh.Signer // nil: use the ssh agent and the default keys
	knownHosts       []string
}

func newSSHDialer(a address, auth Auth) (*sshDialer, error) {
	signer, err := auth.signer()
	if err != nil {
		return nil, err
	}
	files := auth.KnownHostsFiles
	if len(files) == 0 {
		files = defaultKnownHosts()
	}
	return &sshDialer{
		host:       strings.Trim(a.endpoint.Host, "[]"),
		port:       strconv.Itoa(cmp.Or(a.endpoint.Port, 22)),
		path:       a.endpoint.Path,
		user:       cmp.Or(a.user, auth.Username, "git"),
		password:   cmp.Or(a.password, auth.Password),
		signer:     signer,
		knownHosts: files,
	}, nil
}

func (d *sshDialer) close() error { return nil }

func (d *sshDialer) dial(ctx context.Context) (session, error) {
	s, err := d.run(ctx, transport.UploadPackServiceName)
	if err != nil {
		return nil, err
	}
	return newUploadSession(s), nil
}

// run connects and runs one of git's services, git-upload-pack or git-receive-pack.
func (d *sshDialer) run(ctx context.Context, service string) (*sshSession, error) {
	addr := net.JoinHostPort(d.host, d.port)
	keys, err := newHostKeys(addr, d.knownHosts)
	if err != nil {
		return nil, err
	}
	methods, release := d.methods()
	defer release()
	conn, err := proxy.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User: d.user, Auth: methods, HostKeyCallback: keys.verify, HostKeyAlgorithms: keys.algorithms,
	})
	if err != nil {
		stop()
		if keys.refused != nil {
			return nil, keys.refused
		}
		return nil, err
	}
	client := ssh.NewClient(c, channels, requests)
	s := &sshSession{client: client, stop: stop}
	if err := s.start(service, d.path); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// methods returns the authentication methods, and a function that closes the connection to the
// ssh agent.
func (d *sshDialer) methods() (methods []ssh.AuthMethod, release func()) {
	release = func() {}
	if d.signer != nil {
		methods = append(methods, ssh.PublicKeys(d.signer))
	} else {
		signers := defaultSigners()
		if conn, err := net.Dial("unix", os.Getenv("SSH_AUTH_SOCK")); err == nil {
			release = func() { _ = conn.Close() }
			if fromAgent, err := agent.NewClient(conn).Signers(); err == nil {
				signers = append(fromAgent, signers...)
			}
		}
		if len(signers) > 0 {
			methods = append(methods, ssh.PublicKeys(signers...))
		}
	}
	if d.password != "" {
		methods = append(methods, ssh.Password(string(d.password)))
	}
	return methods, release
}

// defaultSigners returns the user's keys that have no passphrase.
func defaultSigners() (signers []ssh.Signer) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		pem, err := os.ReadFile(filepath.Join(home, ".ssh", name))
		if err != nil {
			continue
		}
		if signer, err := ssh.ParsePrivateKey(pem); err == nil {
			signers = append(signers, signer)
		}
	}
	return signers
}

// sshSession speaks the pack protocol with one of Git's services on the server. Its reads and
// writes fail when the context of dial ends.
type sshSession struct {
	client *ssh.Client
	stop   func() bool

	run    *ssh.Session
	in     io.WriteCloser
	out    io.Reader
	stderr bytes.Buffer // the start of the server's stderr, read after run has ended
}

func (s *sshSession) start(service, path string) error {
	var err error
	if s.run, err = s.client.NewSession(); err != nil {
		return fmt.Errorf("open SSH session: %w", err)
	}
	s.run.Stderr = &limitedWriter{&s.stderr, 4 << 10}
	if s.in, err = s.run.StdinPipe(); err != nil {
		return err
	}
	if s.out, err = s.run.StdoutPipe(); err != nil {
		return err
	}
	quoted := "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
	if err := s.run.Start(service + " " + quoted); err != nil {
		return fmt.Errorf("run %s on the server: %w", service, err)
	}
	return nil
}

// AdvertisedReferencesContext reads the references that the server sends first.
func (s *sshSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := refs.Decode(newRefList(ctx, s.out))
	var line *pktline.ErrorLine
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && refs.IsEmpty():
		return nil, transport.ErrEmptyRemoteRepository
	case errors.As(err, &line):
		return nil, serverError(firstLine(line.Text))
	case err != nil:
		return nil, s.complaint(err)
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	return refs, nil
}

// serverError is an error message from a server.
type serverError string

func (s serverError) Error() string { return "the server says: " + string(s) }

// complaint returns the standard error output of the server, or err if there is none.
func (s *sshSession) complaint(err error) error {
	_ = s.in.Close()
	_ = s.run.Wait() // err already reports the failure
	if text := firstLine(s.stderr.String()); text != "" {
		return serverError(text)
	}
	return err
}

// UploadPack requests a pack. It sends all haves at once: without multi_ack the server answers
// them with one line.
func (s *sshSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := req.UploadRequest.Encode(s.in); err != nil {
		return nil, fmt.Errorf("send wants: %w", err)
	}
	if err := req.UploadHaves.Encode(s.in, false); err != nil {
		return nil, err
	}
	if err := pktline.NewEncoder(s.in).EncodeString("done\n"); err != nil {
		return nil, fmt.Errorf("send end of request: %w", err)
	}
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(io.NopCloser(s.out)); err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	return res, nil
}

// Close closes the connection and waits for its end.
func (s *sshSession) Close() error {
	if s.in != nil {
		_, _ = s.in.Write(pktline.FlushPkt) // end the protocol properly if the server still reads
		_ = s.in.Close()
	}
	err := s.client.Close()
	_ = s.client.Wait() // only reports that the connection was closed
	s.stop()
	return err
}

// firstLine returns the first non-empty line, truncated.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "remote:"))
		if line != "" {
			return line[:min(len(line), 300)]
		}
	}
	return ""
}

// limitedWriter stores the first left bytes written to it and discards the rest.
type limitedWriter struct {
	w    *bytes.Buffer
	left int
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.w.Write(p[:n])
	return len(p), nil
}
