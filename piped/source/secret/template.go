package secret

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/c785c783/piped/piped/deploy"
)

// Names of the functions that instrument and render insert into parsed templates. Templates
// cannot call them, because they are not defined during parsing.
const (
	tickFunc = "_tick"
	emitFunc = "_emit"
	callFunc = "_call"
)

// data holds the values for templates, by name.
type data struct{ secrets, attachments map[string]string }

// render executes the template text of a file and returns the result. A panic becomes an error
// that contains none of the data.
func (d data) render(m *meter, file, text string) (out string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			out, err = "", deploy.Errorf(deploy.Invalid, "%s: internal error while rendering the template; please report it with the file", file)
		}
	}()
	t := template.New(file).Option("missingkey=error").Funcs(functions(m))
	if _, err := t.Parse(text); err != nil {
		return "", explainParse(file, err)
	}
	t.Funcs(guards(m))
	for _, defined := range t.Templates() {
		if defined.Tree != nil {
			instrument(defined.Tree.Root)
			defined.Tree.Root.Nodes = append([]parse.Node{action(defined.Tree.Root.Pos, callFunc)}, defined.Tree.Root.Nodes...)
		}
	}
	w := &writer{meter: m}
	err = t.Execute(w, map[string]map[string]string{"encryptedSecrets": d.secrets, "attachment": d.attachments})
	if cause := context.Cause(m.ctx); cause != nil && err != nil {
		return "", fmt.Errorf("render %s: %w", file, cause)
	}
	if err != nil {
		return "", d.explainExec(file, err)
	}
	return w.text.String(), nil
}

// writer collects the output of a template and spends its bytes from the meter.
type writer struct {
	meter *meter
	text  strings.Builder
}

func (w *writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.meter.left {
		return 0, errBudget
	}
	w.meter.left -= int64(len(p))
	return w.text.Write(p)
}

// guards returns the functions that are inserted into parsed templates. They spend from m.
func guards(m *meter) template.FuncMap {
	return template.FuncMap{
		tickFunc: func() string { m.spend(step); return "" },
		callFunc: func() string { m.spend(templateCall); return "" },
		emitFunc: func(v any) any { m.weigh(reflect.ValueOf(v), 0); return v },
	}
}

// instrument inserts calls of guards below n: in each iteration of a range, and before each
// value that is printed. html/template adds its escapers in the same way.
func instrument(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, child := range n.Nodes {
			instrument(child)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pos, emitFunc))
		}
	case *parse.IfNode:
		instrument(n.List)
		instrument(n.ElseList)
	case *parse.WithNode:
		instrument(n.List)
		instrument(n.ElseList)
	case *parse.RangeNode:
		instrument(n.List)
		instrument(n.ElseList)
		n.List.Nodes = append([]parse.Node{action(n.Pos, tickFunc)}, n.List.Nodes...)
	}
}

func action(at parse.Pos, function string) parse.Node {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: at, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: at, Cmds: []*parse.CommandNode{command(at, function)},
	}}
}

func command(at parse.Pos, function string) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: at, Args: []parse.Node{parse.NewIdentifier(function).SetPos(at)}}
}
