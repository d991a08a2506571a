package config

import (
	"fmt"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// PostSync is spec.postSync: what follows a deployment.
type PostSync struct {
	Chain *Chain `yaml:"chain"` // nil when not written
}

// Chain is spec.postSync.chain: each matcher makes one block of the chain, which
// waits until the block before it has succeeded.
type Chain struct {
	Applications []ChainMatcher `yaml:"applications"`
}

// ChainMatcher selects the applications of a block: those that have all of what
// is written, which is at least one of the three.
type ChainMatcher struct {
	Name   string            `yaml:"name"`
	Kind   string            `yaml:"kind"` // KUBERNETES, deploy.Application.Kind
	Labels map[string]string `yaml:"labels"`
}

func (p PostSync) complete(d *strict.Document) {
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
		if m.Kind != "" && m.Kind != deploy.KindKubernetes {
			d.Problemf(at+".kind", "expected %s, the only kind there is here, found %q", deploy.KindKubernetes, m.Kind)
		}
	}
}
