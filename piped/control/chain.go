package control

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// GetDeploymentChain returns a chain with the state of its blocks.
func (s *controlService) GetDeploymentChain(ctx context.Context, req *controlv1.GetDeploymentChainRequest) (*controlv1.GetDeploymentChainResponse, error) {
	if req.DeploymentChainId == "" {
		return nil, deploy.Errorf(deploy.Invalid, "deployment_chain_id is empty: give the chain's ID, which each of its deployments names")
	}
	c, err := s.store.Chain(ctx, req.DeploymentChainId)
	if err != nil {
		return nil, err
	}
	return &controlv1.GetDeploymentChainResponse{Chain: chain(c)}, nil
}

func chain(c deploy.Chain) *controlv1.DeploymentChain {
	m := &controlv1.DeploymentChain{Id: text(c.ID), State: chainStates[c.Status()], CreatedAtMs: millis(c.CreatedAt)}
	var last time.Time
	for i, b := range c.Blocks {
		block := &controlv1.DeploymentChainBlock{State: blockState(c, i)}
		for _, n := range b.Nodes {
			block.Members = append(block.Members, &controlv1.DeploymentChainMember{
				ApplicationId: text(n.ApplicationID), ApplicationName: text(n.ApplicationName), DeploymentId: text(n.DeploymentID),
				Status: deploymentStatus(n.Status), Reason: text(n.Reason), CommandId: text(n.CommandID),
			})
			if n.CompletedAt.After(last) {
				last = n.CompletedAt
			}
		}
		m.Blocks = append(m.Blocks, block)
	}
	if c.Status().Completed() {
		m.CompletedAtMs = millis(last)
	}
	return m
}

var chainStates = map[deploy.Status]controlv1.ChainState{
	deploy.Pending:   controlv1.ChainState_CHAIN_STATE_PENDING,
	deploy.Running:   controlv1.ChainState_CHAIN_STATE_RUNNING,
	deploy.Success:   controlv1.ChainState_CHAIN_STATE_SUCCESS,
	deploy.Failure:   controlv1.ChainState_CHAIN_STATE_FAILURE,
	deploy.Cancelled: controlv1.ChainState_CHAIN_STATE_CANCELLED,
}

// blockState returns the state of a block. A block that can no longer start is cancelled
// before its deployments are.
func blockState(c deploy.Chain, i int) controlv1.ChainState {
	status := c.Blocks[i].Status()
	if turn, _ := c.Turn(i); turn == deploy.ChainCancel && !status.Completed() {
		return controlv1.ChainState_CHAIN_STATE_CANCELLED
	}
	return chainStates[status]
}
