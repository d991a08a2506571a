package gittest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSHOptions configures access. Callers authenticate with the password or the key; without
// either all are rejected. Push also permits pushes.
type SSHOptions struct {
	Push          bool
	Password      string
	AuthorizedKey ssh.PublicKey
	HostKeys      []ssh.Signer // nil makes an RSA, an ECDSA and an Ed25519 key
}

// SSHServer serves one repository over SSH, at the path /repo.git.
type SSHServer struct {
	Addr string // host:port
	URL  string // of the repository, with user git

	dir      string
	push     bool
	config   *ssh.ServerConfig
	hostKeys []ssh.Signer
	listener net.Listener
	wait     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	silent bool
	conns  map[net.Conn]bool
}

// NewHostKeys generates one key of each common kind: RSA, ECDSA and Ed25519.
func NewHostKeys() ([]ssh.Signer, error) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	var signers []ssh.Signer
	for _, key := range []crypto.Signer{rsaKey, ecdsaKey, edKey} {
		s, err := ssh.NewSignerFromSigner(key)
		if err != nil {
			return nil, err
		}
		signers = append(signers, s)
	}
	return signers, nil
}

// NewUserKey generates a key pair for logins: the private key in OpenSSH form and the public
// key.
func NewUserKey() ([]byte, ssh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "gittest")
	if err != nil {
		return nil, nil, err
	}
	key, err := ssh.NewPublicKey(public)
	return pem.EncodeToMemory(block), key, err
}

// ServeSSH serves the repository at dir on a free loopback port. The caller closes the server.
func ServeSSH(dir string, options SSHOptions) (*SSHServer, error) {
	keys := options.HostKeys
	if keys == nil {
		var err error
		if keys, err = NewHostKeys(); err != nil {
			return nil, fmt.Errorf("make host keys: %w", err)
		}
	}
	config := &ssh.ServerConfig{
		PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			if options.Password == "" || !same(string(password), options.Password) {
				return nil, errors.New("wrong password")
			}
			return nil, nil
		},
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if options.AuthorizedKey == nil || !same(string(key.Marshal()), string(options.AuthorizedKey.Marshal())) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}
	for _, k := range keys {
		config.AddHostKey(k)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &SSHServer{
		Addr: listener.Addr().String(), URL: "ssh://git@" + listener.Addr().String() + "/repo.git",
		dir: dir, push: options.Push, config: config, hostKeys: keys, listener: listener, conns: map[net.Conn]bool{},
	}
	s.wait.Go(s.accept)
	return s, nil
}

// KnownHosts returns the content of a known_hosts file with one line for each host key.
func (s *SSHServer) KnownHosts() string {
	var lines string
	for _, k := range s.hostKeys {
		lines += knownhosts.Line([]string{s.Addr}, k.PublicKey()) + "\n"
	}
	return lines
}

// SetSilent sets whether the server accepts new connections without ever answering.
func (s *SSHServer) SetSilent(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
}

// Close closes all connections and waits until the server has stopped.
func (s *SSHServer) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
	return err
}

func (s *SSHServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			_ = conn.Close()
		} else {
			s.conns[conn] = true
			silent := s.silent
			s.wait.Go(func() { s.serve(conn, silent) })
		}
		s.mu.Unlock()
	}
}

func (s *SSHServer) serve(conn net.Conn, silent bool) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	if silent {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	c, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return // the client was rejected or disconnected
	}
	defer c.Close()
	s.wait.Go(func() { ssh.DiscardRequests(requests) })
	for nc := range channels {
		if nc.ChannelType() != "session" {
			_ = nc.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		channel, requests, err := nc.Accept()
		if err != nil {
			return
		}
		s.wait.Go(func() { s.session(channel, requests) })
	}
}

// session runs one git-upload-pack or, if pushes are permitted, git-receive-pack.
func (s *SSHServer) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for req := range requests {
		var exe struct{ Command string }
		asked := req.Type == "exec" && ssh.Unmarshal(req.Payload, &exe) == nil
		service, ours := strings.CutSuffix(exe.Command, " '/repo.git'")
		if !asked || !ours || service != "git-upload-pack" && !(s.push && service == "git-receive-pack") {
			if req.WantReply {
				_ = req.Reply(req.Type == "exec", nil)
			}
			if req.Type != "exec" {
				continue
			}
			_, _ = io.WriteString(channel.Stderr(), "remote: \nERROR: Repository not found.\n")
			exit(channel, 128)
			return
		}
		_ = req.Reply(true, nil)
		s.wait.Go(func() { ssh.DiscardRequests(requests) })
		exit(channel, s.run(channel, strings.TrimPrefix(service, "git-")))
		return
	}
}

func (s *SSHServer) run(channel ssh.Channel, service string) (status uint32) {
	cmd := exec.Command("git", service, s.dir)
	cmd.Env = append(os.Environ(), anyOwner...)
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	stdin, err := cmd.StdinPipe() // not cmd.Stdin: Wait would wait for the client to close
	if err != nil {
		return 1
	}
	if err := cmd.Start(); err != nil {
		return 1
	}
	s.wait.Go(func() {
		_, _ = io.Copy(stdin, channel)
		_ = stdin.Close()
	})
	if err := cmd.Wait(); err != nil {
		return 1
	}
	return 0
}

// exit sends the exit status of the command.
func exit(channel ssh.Channel, status uint32) {
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
}
