package deploy

import (
	"strings"
	"testing"
)

func block(statuses ...Status) ChainBlock {
	var b ChainBlock
	for _, s := range statuses {
		b.Nodes = append(b.Nodes, ChainNode{ApplicationName: "app-" + strings.ToLower(string(s)), Status: s, Reason: "why"})
	}
	return b
}

func TestChainBlockStatus(t *testing.T) {
	for name, c := range map[string]struct {
		block ChainBlock
		want  Status
	}{
		"nothing to deploy":        {block(), Success},
		"nothing started":          {block(Pending, Planned), Pending},
		"one runs":                 {block(Pending, Running), Running},
		"one is done":              {block(Pending, Success), Running},
		"all done":                 {block(Success, Success), Success},
		"one rolls back":           {block(RollingBack, Success), Running},
		"one failed, others run":   {block(Failure, Running), Failure},
		"one was cancelled":        {block(Cancelled, Success), Cancelled},
		"failure before cancelled": {block(Cancelled, Failure), Failure},
	} {
		if got := c.block.Status(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestChainTurn(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []ChainBlock
		block  int
		want   ChainTurn
		chain  Status
		reason string
	}{
		"the first block waits for nothing":  {[]ChainBlock{block(Pending), block(Pending)}, 0, ChainGo, Pending, ""},
		"the one before runs":                {[]ChainBlock{block(Running), block(Pending)}, 1, ChainWait, Running, "block 0"},
		"the one before is done":             {[]ChainBlock{block(Success), block(Pending)}, 1, ChainGo, Running, ""},
		"the one before matched nothing":     {[]ChainBlock{block(Success), block(), block(Pending)}, 2, ChainGo, Running, ""},
		"the one before failed":              {[]ChainBlock{block(Failure), block(Pending)}, 1, ChainCancel, Failure, "Block 0 of the deployment chain did not succeed"},
		"an earlier one was cancelled":       {[]ChainBlock{block(Success), block(Cancelled), block(Pending), block(Pending)}, 3, ChainCancel, Cancelled, "Block 1"},
		"all done":                           {[]ChainBlock{block(Success), block(Success)}, 1, ChainGo, Success, ""},
		"an earlier one waits, a later lost": {[]ChainBlock{block(Success), block(Pending), block(Cancelled)}, 2, ChainWait, Running, "block 1"},
	} {
		chain := Chain{Blocks: c.blocks}
		got, reason := chain.Turn(c.block)
		if got != c.want || !strings.Contains(reason, c.reason) || (reason == "") != (c.want == ChainGo) {
			t.Errorf("%s: %d %q, want %d with %q", name, got, reason, c.want, c.reason)
		}
		if got := chain.Status(); got != c.chain {
			t.Errorf("%s: the chain is %s, want %s", name, got, c.chain)
		}
	}
}
