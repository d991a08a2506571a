package helm

import (
	"text/template/parse"
)

// The template functions of the steps. See guard.functions.
const (
	stepTurn  = "pipedTurn"
	stepEnter = "pipedEnter"
	stepLeave = "pipedLeave"
)

// steps are nodes that are inserted into templates and call the step functions. All templates
// share them.
type steps struct{ turn, enter, leave parse.Node }

func newSteps() steps {
	node := func(name string) parse.Node {
		known := map[string]any{name: true}
		trees, err := parse.Parse(name, "{{"+name+"}}", "", "", known)
		if err != nil {
			panic(err) // unreachable: the text is constant
		}
		return trees[name].Root.Nodes[0]
	}
	return steps{turn: node(stepTurn), enter: node(stepEnter), leave: node(stepLeave)}
}

// into inserts the steps into a template. It is idempotent.
func (s steps) into(root *parse.ListNode) error {
	if len(root.Nodes) > 0 && root.Nodes[0] == s.enter {
		return nil
	}
	if err := s.list(root, maxInner); err != nil {
		return err
	}
	nodes := append([]parse.Node{s.enter}, root.Nodes...)
	root.Nodes = append(nodes, s.leave)
	return nil
}

// list inserts a step into each loop in a list of nodes. It returns an error if nodes are nested
// more than left levels, because executing them could overflow the stack.
func (s steps) list(list *parse.ListNode, left int) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		if err := s.node(node, left-1); err != nil {
			return err
		}
	}
	return nil
}

func (s steps) node(node parse.Node, left int) error {
	if left < 0 {
		return limitf("blocks or parentheses are nested more than %d deep", maxInner)
	}
	switch n := node.(type) {
	case *parse.RangeNode:
		if err := s.branch(&n.BranchNode, left); err != nil {
			return err
		}
		n.List.Nodes = append([]parse.Node{s.turn}, n.List.Nodes...)
	case *parse.IfNode:
		return s.branch(&n.BranchNode, left)
	case *parse.WithNode:
		return s.branch(&n.BranchNode, left)
	case *parse.ActionNode:
		return s.node(n.Pipe, left-1)
	case *parse.TemplateNode:
		return s.node(n.Pipe, left-1)
	case *parse.ChainNode:
		return s.node(n.Node, left-1)
	case *parse.PipeNode:
		return s.pipe(n, left)
	}
	return nil
}

func (s steps) branch(n *parse.BranchNode, left int) error {
	if err := s.node(n.Pipe, left-1); err != nil {
		return err
	}
	if err := s.list(n.List, left); err != nil {
		return err
	}
	return s.list(n.ElseList, left)
}

func (s steps) pipe(n *parse.PipeNode, left int) error {
	if n == nil {
		return nil
	}
	for _, command := range n.Cmds {
		for _, arg := range command.Args {
			if err := s.node(arg, left-1); err != nil {
				return err
			}
		}
	}
	return nil
}
