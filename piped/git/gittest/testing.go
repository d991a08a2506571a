package gittest

import (
	"os"
	"path/filepath"
	"testing"
)

// New creates a repository in a temporary directory.
func New(t testing.TB) *Repo {
	t.Helper()
	r, err := NewRepo(filepath.Join(t.TempDir(), "repo.git"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Push writes files, commits them to Branch and returns the commit's hash.
func (r *Repo) Push(t testing.TB, message string, files map[string]string) string {
	t.Helper()
	if err := r.Write(files); err != nil {
		t.Fatal(err)
	}
	h, err := r.Commit(message)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Pull reads the head of Branch after a push to the repository; later commits build on it.
func (r *Repo) Pull(t testing.TB) {
	t.Helper()
	r.sto.Reindex() // the push may have added a pack
	ref, err := r.sto.Reference(branchRef)
	if err == nil {
		err = r.stage(ref.Hash())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// HTTP serves the repository until the test ends.
func (r *Repo) HTTP(t testing.TB, options HTTPOptions) *HTTPServer {
	t.Helper()
	s, err := ServeHTTP(r.Dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// SSH serves the repository until the test ends.
func (r *Repo) SSH(t testing.TB, options SSHOptions) *SSHServer {
	t.Helper()
	s, err := ServeSSH(r.Dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// KnownHostsFile writes the server's host keys to a temporary file and returns its name.
func (s *SSHServer) KnownHostsFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte(s.KnownHosts()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
