package page

import (
	"fmt"
	"net/url"
	"strings"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// chainView is a chain of deployments.
type chainView struct {
	chain *controlv1.DeploymentChain
	strip *strip
}

func chainPath(id string) string { return "/chains/" + url.PathEscape(id) }

// showChain shows a chain.
func showChain(v *visit) (*screen, error) {
	c, err := v.readChain(v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &screen{title: "Chain of " + c.root(), nav: "Events", body: chainPage(v, c), live: chainPath(c.chain.Id) + "/live", parts: c.parts(v), strip: c.strip}, nil
}

// readChain reads a chain.
func (v *visit) readChain(id string) (*chainView, error) {
	resp, err := v.control.GetDeploymentChain(v.ctx, &controlv1.GetDeploymentChainRequest{DeploymentChainId: id})
	if err != nil {
		return nil, err
	}
	c := &chainView{chain: resp.GetChain()}
	c.strip, err = v.readStrip()
	return c, err
}

// chainSource is the stream of a chain.
type chainSource struct {
	everyApplication
	id string
}

func liveChain(v *visit) (source, error) { return chainSource{id: v.r.PathValue("id")}, nil }

func (s chainSource) parts(v *visit) ([]part, error) {
	c, err := v.readChain(s.id)
	if err != nil {
		return nil, err
	}
	return append(c.parts(v), c.strip.part()), nil
}

// parts returns the live part, but the strip.
func (c *chainView) parts(v *visit) []part {
	return []part{{"chain", keyOf(c.chain), chainBody(v, c)}}
}

// root returns the names of the applications that began the chain.
func (c *chainView) root() string {
	if len(c.chain.GetBlocks()) == 0 {
		return "no application"
	}
	return memberNames(c.chain.Blocks[0])
}

func memberNames(b *controlv1.DeploymentChainBlock) string {
	names := make([]string, len(b.Members))
	for i, m := range b.Members {
		names[i] = m.ApplicationName
	}
	return strings.Join(names, ", ")
}

// headline is the first sentence of a chain.
func (c *chainView) headline() string {
	blocks := c.chain.GetBlocks()
	at := 0
	for i, b := range blocks {
		if b.State != controlv1.ChainState_CHAIN_STATE_SUCCESS {
			at = i
			break
		}
	}
	name := "The chain of " + c.root()
	if len(blocks) == 0 {
		return name + " has no blocks."
	}
	switch c.chain.GetState() {
	case controlv1.ChainState_CHAIN_STATE_SUCCESS:
		return fmt.Sprintf("%s is through: %s succeeded, in %s.", name, plural(len(blocks), "block", "blocks"), millis(c.chain.CompletedAtMs-c.chain.CreatedAtMs))
	case controlv1.ChainState_CHAIN_STATE_FAILURE:
		return fmt.Sprintf("%s failed at block %d of %d; later blocks do not begin.", name, at+1, len(blocks))
	case controlv1.ChainState_CHAIN_STATE_CANCELLED:
		return fmt.Sprintf("%s was cancelled at block %d of %d.", name, at+1, len(blocks))
	}
	return fmt.Sprintf("%s is at block %d of %d: %s.", name, at+1, len(blocks), memberNames(blocks[at]))
}

// chainStateMark returns the mark of a chain or block.
func chainStateMark(s controlv1.ChainState) mark {
	switch s {
	case controlv1.ChainState_CHAIN_STATE_PENDING:
		return mark{icon: "clock", word: "Waiting for its turn", role: roleMuted}
	case controlv1.ChainState_CHAIN_STATE_RUNNING:
		return mark{icon: "ring", word: "Running", role: roleActive, progress: 50}
	case controlv1.ChainState_CHAIN_STATE_SUCCESS:
		return mark{icon: "check", word: "Succeeded", role: roleOK}
	case controlv1.ChainState_CHAIN_STATE_FAILURE:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case controlv1.ChainState_CHAIN_STATE_CANCELLED:
		return mark{icon: "stop", word: "Cancelled", role: roleMuted}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// memberMark returns the mark of a member: without a deployment it waits, unless it was refused.
func memberMark(m *controlv1.DeploymentChainMember) mark {
	if m.DeploymentId == "" && m.Status == modelv1.DeploymentStatus_DEPLOYMENT_PENDING {
		return mark{icon: "dot", word: "Not begun", role: roleMuted}
	}
	return deploymentMark(m.Status)
}
