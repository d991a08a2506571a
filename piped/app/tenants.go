package app

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/signature"
)

// tenants applies the present tenancy rules. It implements Tenancy of the planner and of the
// stages and Signatures of the trigger, and is safe for concurrent use.
type tenants struct {
	object func(repoID, commit string) ([]byte, error) // the bytes of a commit object
	rules  atomic.Pointer[tenancy]
}

// tenancy contains the rules of one configuration.
type tenancy struct {
	rules config.Tenancy
	keys  map[string]*signature.Keys // by the name of their rule

	mu    sync.Mutex
	known map[signed]verdict
}

// signed is a commit to verify, and verdict the result, which never changes.
type (
	signed  struct{ rule, repoID, commit string }
	verdict struct {
		signer string
		err    error
	}
)

// maxVerdicts bounds the cache of verdicts, which the applications of a repository share.
const maxVerdicts = 4096

func newTenants(object func(repoID, commit string) ([]byte, error)) *tenants {
	t := &tenants{object: object}
	t.rules.Store(&tenancy{})
	return t
}

// planTenancy reads the keys that the rules name.
func planTenancy(rules config.Tenancy) (*tenancy, error) {
	t := &tenancy{rules: rules, keys: map[string]*signature.Keys{}, known: map[signed]verdict{}}
	for _, r := range rules {
		if r.VerifyCommits == nil {
			continue
		}
		keys, err := signature.Load(r.VerifyCommits.OpenPGP, r.VerifyCommits.SSH)
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "tenancy %q: %w", r.Name, err)
		}
		t.keys[r.Name] = keys
	}
	return t, nil
}

// same reports whether t and o have the same rules and keys.
func (t *tenancy) same(o *tenancy) bool {
	if !reflect.DeepEqual(t.rules, o.rules) {
		return false
	}
	for name, keys := range t.keys { // equal rules name the same keys
		if !keys.Equal(o.keys[name]) {
			return false
		}
	}
	return true
}

// use replaces the rules.
func (t *tenants) use(next *tenancy) { t.rules.Store(next) }

// Tenant returns the rules for the application configured at a place.
func (t *tenants) Tenant(at deploy.GitPath) config.Tenant { return t.rules.Load().rules.Of(at) }

// Signer returns the signer of a commit of an application, "" if no rule requires one. The
// error is of kind deploy.Invalid if a rule rejects the commit; then it is permanent.
func (t *tenants) Signer(ctx context.Context, at deploy.GitPath, commit string) (signer string, err error) {
	rules := t.rules.Load()
	for _, r := range rules.rules.Of(at) {
		if r.VerifyCommits == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if signer, err = rules.verify(signed{r.Name, at.RepoID, commit}, t.object); err != nil {
			return "", err
		}
	}
	return signer, nil
}

// MustDescend returns the name of the first rule that requires each head of the application at
// a place to descend from the former one, "" if there is none.
func (t *tenants) MustDescend(at deploy.GitPath) (rule string) {
	for _, r := range t.rules.Load().rules.Of(at) {
		if r.VerifyCommits != nil && r.VerifyCommits.RequireDescendant {
			return r.Name
		}
	}
	return ""
}

// verify checks that a commit is signed with a key of a rule.
func (t *tenancy) verify(q signed, object func(repoID, commit string) ([]byte, error)) (string, error) {
	t.mu.Lock()
	v, ok := t.known[q]
	t.mu.Unlock()
	if ok {
		return v.signer, v.err
	}
	raw, err := object(q.repoID, q.commit)
	if err != nil {
		return "", err
	}
	if v.signer, v.err = t.keys[q.rule].Verify(raw); v.err != nil {
		v.err = deploy.Errorf(deploy.Invalid, "tenancy %q does not allow commit %s: %w; sign it with a key that the rule names, or ask the operators of the agent to add yours",
			q.rule, deploy.ShortHash(q.commit), v.err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= maxVerdicts {
		clear(t.known)
	}
	t.known[q] = v
	return v.signer, v.err
}
