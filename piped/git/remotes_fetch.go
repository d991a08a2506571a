package git

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/c785c783/piped/piped/deploy"
)

// remoteRefs are the references that a remote advertises.
type remoteRefs struct{ *packp.AdvRefs }

// resolve returns the commit of ref and the full name of the reference; the name is "" for the
// default branch and for a commit hash.
func (r remoteRefs) resolve(ref string) (plumbing.Hash, plumbing.ReferenceName, bool) {
	if ref == "" {
		if r.Head == nil {
			return plumbing.ZeroHash, "", false
		}
		return *r.Head, "", true
	}
	for _, name := range []string{ref, "refs/" + ref, "refs/tags/" + ref, "refs/heads/" + ref} {
		if h, ok := r.Peeled[name]; ok {
			return h, plumbing.ReferenceName(name), true
		}
		if h, ok := r.References[name]; ok {
			return h, plumbing.ReferenceName(name), true
		}
	}
	return plumbing.NewHash(ref), "", plumbing.IsHash(ref)
}

// list reads the references of the remote.
func (m *remoteMirror) list(w *watchdog, d dialer) (_ remoteRefs, err error) {
	measured := measure(m.remotes.cfg.Metrics, ListRefs)
	defer func() { measured(w, err) }()
	s, err := dialServer(w, d)
	if err != nil {
		return remoteRefs{}, m.unavailable(w, "list branches", err)
	}
	defer s.Close()
	refs, err := s.server.AdvertisedReferencesContext(w)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return remoteRefs{packp.NewAdvRefs()}, nil
	}
	if err != nil {
		return remoteRefs{}, m.unavailable(w, "list branches", err)
	}
	return remoteRefs{refs}, nil
}

// dialServer opens a connection to a server. It rejects local paths.
func dialServer(w *watchdog, d dialer) (*uploadSession, error) {
	s, err := d.dial(w)
	if err != nil {
		return nil, err
	}
	return s.(*uploadSession), nil
}

func (m *remoteMirror) unavailable(w *watchdog, doing string, err error) error {
	return unavailable(w, m.remotes.cfg.Timeout, doing, m.address.text, err)
}

// fetch adds the commit h to the mirror. It omits the history if the server supports that, and
// fetches all branches and tags if the server cannot send single commits by hash.
func (m *remoteMirror) fetch(w *watchdog, d dialer, refs remoteRefs, h plumbing.Hash, ref string) (err error) {
	start, measured := m.remotes.cfg.Now(), measure(m.remotes.cfg.Metrics, Fetch)
	defer func() { measured(w, err) }()
	wants, depth := []plumbing.Hash{h}, 1
	if !refs.sendsByHash(h) {
		wants, depth = refs.all(), 0
	}
	if err := m.receive(w, d, wants, depth); err != nil {
		return m.unavailable(w, "fetch "+ref, err)
	}
	err = checkCommit(m.objects, h)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return deploy.Errorf(deploy.Invalid, "remote %s has no commit %s on any branch or tag; correct the reference", m.address.text, h)
	}
	if err != nil {
		return m.unavailable(w, "fetch "+ref, fmt.Errorf("the remote sent an incomplete commit: %w", err))
	}
	m.remotes.cfg.Logger.Info("remote git repository fetched", "remote", m.address.text, "ref", ref, "commit", h.String(), "took", m.remotes.cfg.Now().Sub(start))
	return nil
}

// sendsByHash reports whether the server sends commits by hash.
func (r remoteRefs) sendsByHash(h plumbing.Hash) bool {
	for _, c := range []capability.Capability{capability.AllowReachableSHA1InWant, "allow-any-sha1-in-want"} {
		if r.Capabilities.Supports(c) {
			return true
		}
	}
	return slices.Contains(r.all(), h)
}

// all returns the commits of all branches and tags.
func (r remoteRefs) all() []plumbing.Hash {
	var out []plumbing.Hash
	for name, h := range r.References {
		if !strings.HasPrefix(name, "refs/heads/") && !strings.HasPrefix(name, "refs/tags/") {
			continue
		}
		if peeled, ok := r.Peeled[name]; ok {
			h = peeled
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b plumbing.Hash) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

// receive fetches commits over a new connection. It does not offer the commits of the mirror,
// since the mirror lacks their history.
func (m *remoteMirror) receive(w *watchdog, d dialer, wants []plumbing.Hash, depth int) error {
	w.touch()
	s, err := dialServer(w, d)
	if err != nil {
		return err
	}
	defer s.Close()
	refs, err := s.server.AdvertisedReferencesContext(w)
	if err != nil {
		return err
	}
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = wants
	if depth > 0 && refs.Capabilities.Supports(capability.Shallow) {
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return err
		}
		req.Depth = packp.DepthCommits(depth)
	}
	shallow, err := s.receive(w, req, m.objects, m.remotes.cfg.MaxBytes)
	if err != nil {
		return err
	}
	return m.objects.addShallow(shallow)
}

// addShallow marks commits as shallow (stored without their parents), as Git does.
func (o *objects) addShallow(commits []plumbing.Hash) error {
	if len(commits) == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known, err := o.sto.Shallow()
	if err != nil {
		return fmt.Errorf("read which commits are shallow: %w", err)
	}
	set := map[plumbing.Hash]bool{}
	for _, h := range append(known, commits...) {
		set[h] = true
	}
	return o.sto.SetShallow(slices.Collect(maps.Keys(set)))
}
