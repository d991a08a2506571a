package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// PostSync is spec.postSync: what follows a deployment.
type PostSync struct {
	// Chain begins a deployment chain.
	Chain *Chain `yaml:"chain"`
}

// Chain is spec.postSync.chain: each matcher makes one block of the chain, which
// waits until the block before it has succeeded.
type Chain struct {
	// Applications are the blocks of the chain. A block is the applications that have all of what
	// is written. Each block waits until the block before it has succeeded.
	Applications []ChainMatcher `yaml:"applications"`
}

// ChainMatcher selects the applications of a block: those that have all of what
// is written, which is at least one of the three.
type ChainMatcher struct {
	// Name is the name of the applications.
	Name string `yaml:"name"`
	// Kind is the kind of the applications, `KUBERNETES`.
	Kind string `yaml:"kind"`
	// Labels are labels of the applications, all of them.
	Labels map[string]string `yaml:"labels"`
}

func (p PostSync) complete(d *strict.Document, kinds Kinds) {
	if p.Chain == nil {
		return
	}
	const field = "postSync.chain.applications"
	if len(p.Chain.Applications) == 0 {
		d.Problemf(field, "expected at least one matcher with name, kind or labels")
	}
	for i, m := range p.Chain.Applications {
		at := fmt.Sprintf("%s[%d]", field, i)
		if m.Name == "" && m.Kind == "" && len(m.Labels) == 0 {
			d.Problemf(at, "expected at least one of name, kind and labels")
		}
		switch {
		case m.Kind == "" || slices.Contains(kinds.Names(), m.Kind):
		case slices.Contains(kinds.otherNames(), m.Kind):
			d.Warnf(at+".kind", "matches nothing: this version of piped deploys no applications of kind %s", m.Kind)
		default:
			d.Problemf(at+".kind", "expected %s or another kind of PipeCD, found %q", strings.Join(kinds.Names(), ", "), m.Kind)
		}
	}
}
