package deploy

import (
	"fmt"
	"time"
)

// Chain is a deployment chain. Its first deployment is the only one of block 0; each later
// block waits for the success of the block before it. Blocks and nodes are fixed when the
// first deployment is created. Node states are read from the deployments and commands.
type Chain struct {
	ID        string
	Blocks    []ChainBlock
	CreatedAt time.Time
}

// ChainBlock is one step of a chain. A block without nodes, whose matcher found no
// application, counts as succeeded.
type ChainBlock struct {
	Nodes []ChainNode
}

// ChainNode is one application in a block.
type ChainNode struct {
	ApplicationID   string
	ApplicationName string
	// CommandID is the CommandChainSync that requests the deployment; "" in block 0.
	CommandID string
	// DeploymentID is "" until the command has created a deployment.
	DeploymentID string
	// Status is the deployment's status: Pending before it exists, Failure when the
	// command was rejected.
	Status Status
	Reason string // of the deployment's status, or of the rejection
	// CompletedAt is when the deployment ended or the command was rejected.
	CompletedAt time.Time
}

// Status returns the state of a block: Pending before any of its deployments starts, then
// Running, then the final status. A failed or cancelled node makes the whole block failed or
// cancelled at once.
func (b ChainBlock) Status() Status {
	counts := map[Status]int{}
	for _, n := range b.Nodes {
		counts[n.Status]++
	}
	switch {
	case counts[Failure] > 0:
		return Failure
	case counts[Cancelled] > 0:
		return Cancelled
	case counts[Success] == len(b.Nodes):
		return Success
	case counts[Success]+counts[Running]+counts[RollingBack] > 0:
		return Running
	}
	return Pending
}

// Status returns the state of the chain: the state of the first block that has not succeeded,
// but Running instead of Pending once an earlier block has succeeded.
func (c Chain) Status() Status {
	for i, b := range c.Blocks {
		switch s := b.Status(); {
		case s == Success:
		case s == Pending && i > 0:
			return Running
		default:
			return s
		}
	}
	return Success
}

// ChainTurn is the next action of a waiting deployment of a chain.
type ChainTurn int

// The actions: wait for the earlier blocks, proceed, or be cancelled because an earlier block
// did not succeed.
const (
	ChainWait ChainTurn = iota
	ChainGo
	ChainCancel
)

// Turn returns the next action of a deployment in the block with the given index, and
// the reason if it has to wait or is cancelled.
func (c Chain) Turn(block int) (ChainTurn, string) {
	for i, b := range c.Blocks[:min(block, len(c.Blocks))] {
		switch s := b.Status(); s {
		case Success:
		case Failure, Cancelled:
			// The chain names the application that failed; who sees this one may not see that.
			return ChainCancel, fmt.Sprintf("Block %d of the deployment chain did not succeed", i)
		default:
			return ChainWait, fmt.Sprintf("Waiting for block %d of the deployment chain", i)
		}
	}
	return ChainGo, ""
}
