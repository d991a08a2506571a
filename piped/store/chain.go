package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// chainNode holds the constant values of a node.
type chainNode struct {
	ApplicationID   string `json:"applicationID"`
	ApplicationName string `json:"applicationName"`
	CommandID       string `json:"commandID,omitempty"`
}

// chainRow is a stored chain: its nodes, block by block.
type chainRow struct {
	chain  deploy.Chain
	blocks [][]chainNode
}

// Chain returns a deployment chain. A node has the state of its deployment. A node without a
// deployment has the state of its command: Pending while the command is open, Failure with the
// reason if it was rejected.
func (s *Store) Chain(ctx context.Context, id string) (deploy.Chain, error) {
	c, err := s.chain(ctx, id)
	return c, s.fail(err, "read deployment chain "+id)
}

func (s *Store) chain(ctx context.Context, id string) (deploy.Chain, error) {
	row, ok, err := one(ctx, s, scanChain, "SELECT id, body, created_at FROM chains WHERE id = ?", id)
	if err == nil && !ok {
		err = deploy.Errorf(deploy.NotFound, "there is no deployment chain %s", id)
	}
	if err != nil {
		return deploy.Chain{}, err
	}
	// Read the commands first: if one is answered in the meantime, its deployment is found
	// below.
	commands, err := chainCommands(ctx, s, row.blocks)
	if err != nil {
		return deploy.Chain{}, err
	}
	made, err := all(ctx, s, scanDeployment, selectDeployment+" WHERE chain_id = ? AND chain_id <> ''", id) // with the condition of the index
	if err != nil {
		return deploy.Chain{}, err
	}
	type place struct {
		block         int
		applicationID string
	}
	deployments := map[place]deploy.Deployment{}
	for _, d := range made {
		deployments[place{d.ChainBlock, d.ApplicationID}] = d
	}
	for i, nodes := range row.blocks {
		block := deploy.ChainBlock{}
		for _, n := range nodes {
			node := deploy.ChainNode{ApplicationID: n.ApplicationID, ApplicationName: n.ApplicationName, CommandID: n.CommandID}
			if d, ok := deployments[place{i, n.ApplicationID}]; ok {
				node.DeploymentID, node.Status, node.Reason, node.CompletedAt = d.ID, d.Status, d.StatusReason, d.CompletedAt
			} else {
				awaiting(&node, commands[n.CommandID])
			}
			block.Nodes = append(block.Nodes, node)
		}
		row.chain.Blocks = append(row.chain.Blocks, block)
	}
	return row.chain, nil
}

// awaiting gives a node without a deployment the state of its command. If the command is
// answered or missing, the node will never have a deployment and has failed.
func awaiting(node *deploy.ChainNode, c deploy.Command) {
	node.Status, node.CompletedAt = deploy.Failure, c.HandledAt
	switch c.Status {
	case deploy.CommandOpen:
		node.Status, node.Reason = deploy.Pending, "The deployment is not made yet"
	case deploy.CommandFailed, deploy.CommandTimeout:
		node.Reason = cmp.Or(c.Metadata[deploy.MetaReason], "The command that asks for the deployment was not answered in time")
	default:
		node.Reason = "The deployment is no longer kept"
	}
}

func scanChain(row scanner) (r chainRow, err error) {
	var body string
	var createdAt int64
	if err := row.Scan(&r.chain.ID, &body, &createdAt); err != nil {
		return r, err
	}
	r.chain.CreatedAt = fromMilli(createdAt)
	return r, decode(body, &r.blocks)
}

// chainCommands returns the commands of a chain's nodes by ID.
func chainCommands(ctx context.Context, q querier, blocks [][]chainNode) (map[string]deploy.Command, error) {
	const perQuery = 500
	var ids []string
	for _, n := range slices.Concat(blocks...) {
		if n.CommandID != "" {
			ids = append(ids, n.CommandID)
		}
	}
	out := make(map[string]deploy.Command, len(ids))
	for chunk := range slices.Chunk(ids, perQuery) {
		cs, err := all(ctx, q, scanCommand, selectCommand+" WHERE id IN ("+placeholders(len(chunk))+")", anys(chunk)...)
		if err != nil {
			return nil, err
		}
		for _, c := range cs {
			out[c.ID] = c
		}
	}
	return out, nil
}

// beginChain stores the chain that d starts and requests the deployments of its later blocks.
func (t *tx) beginChain(ctx context.Context, c deploy.Chain, d *deploy.Deployment) error {
	if c.ID == "" || c.ID != d.ChainID || d.ChainBlock != 0 || len(c.Blocks) == 0 {
		return deploy.Errorf(deploy.Internal, "deployment %s (chain %q, block %d) cannot begin the chain %q of %d blocks",
			d.ID, d.ChainID, d.ChainBlock, c.ID, len(c.Blocks))
	}
	blocks := [][]chainNode{{{ApplicationID: d.ApplicationID, ApplicationName: d.ApplicationName}}}
	for i, b := range c.Blocks[1:] {
		nodes := []chainNode{}
		for _, n := range b.Nodes {
			nodes = append(nodes, chainNode{n.ApplicationID, n.ApplicationName, n.CommandID})
			if _, err := t.insertCommand(ctx, deploy.Command{
				ID: n.CommandID, Type: deploy.CommandChainSync, ApplicationID: n.ApplicationID, Commander: c.ID,
				Strategy: deploy.StrategyAuto, ChainID: c.ID, ChainBlock: i + 1,
			}); err != nil {
				return err
			}
		}
		blocks = append(blocks, nodes)
	}
	body, err := encode(blocks)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, "INSERT INTO chains (id, body, created_at) VALUES (?, ?, ?)", c.ID, body, toMilli(d.CreatedAt))
	if t.store.dialect.unique(err) {
		return deploy.Errorf(deploy.Exists, "deployment chain %s exists already", c.ID)
	}
	return err
}
