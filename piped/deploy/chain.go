package deploy

import (
	"fmt"
	"time"
)

// Chain is a deployment chain: the deployment that began it is the only one of
// block 0, and each later block waits until the one before it has succeeded. It
// is fixed when the first deployment is made; only the states of its nodes
// change, and those are read from their deployments and commands.
type Chain struct {
	ID        string
	Blocks    []ChainBlock
	CreatedAt time.Time
}

// ChainBlock is one step of a chain. A block without nodes, whose matcher found
// no application, has succeeded.
type ChainBlock struct {
	Nodes []ChainNode
}

// ChainNode is one application in a block.
type ChainNode struct {
	ApplicationID   string
	ApplicationName string
	// CommandID is the CommandChainSync that asks for the deployment; "" in block 0.
	CommandID string
	// DeploymentID is "" until the command is answered with a deployment.
	DeploymentID string
	// Status is that of the deployment; Pending while there is none yet, Failure
	// when the command was refused.
	Status Status
	Reason string // of the deployment's status, or of the refusal
	// CompletedAt is when the deployment ended or was refused; zero before.
	CompletedAt time.Time
}

// Status returns the state of a block: Pending while none of its deployments has
// started, Running, or how it ended. One failed or cancelled node decides at once.
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

// Status returns the state of the chain: that of the first block that has not
// succeeded, Running once a block before it has.
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

// ChainTurn is what a waiting deployment of a chain is to do.
type ChainTurn int

// The turns: wait for the blocks before, go on, or be cancelled because a block
// before has not succeeded.
const (
	ChainWait ChainTurn = iota
	ChainGo
	ChainCancel
)

// Turn says what a deployment of the given block is to do, and why when it is
// not to go on.
func (c Chain) Turn(block int) (ChainTurn, string) {
	for i, b := range c.Blocks[:min(block, len(c.Blocks))] {
		switch s := b.Status(); s {
		case Success:
		case Failure, Cancelled:
			return ChainCancel, fmt.Sprintf("Block %d of the deployment chain did not succeed: %s", i, b.blame())
		default:
			return ChainWait, fmt.Sprintf("Waiting for block %d of the deployment chain", i)
		}
	}
	return ChainGo, ""
}

// blame names the first node that failed or was cancelled.
func (b ChainBlock) blame() string {
	for _, n := range b.Nodes {
		if n.Status == Failure || n.Status == Cancelled {
			return fmt.Sprintf("application %s: %s: %s", n.ApplicationName, n.Status, n.Reason)
		}
	}
	return ""
}
