package variant

import (
	"errors"
	"fmt"
	"regexp"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// patch returns the objects with the patches applied to copies; objects without a patch are
// not copied. A patch whose target does not exist or whose path matches nothing is an error.
func patch(objects []manifest.Object, patches []kubernetes.Patch) ([]manifest.Object, error) {
	out := append([]manifest.Object(nil), objects...)
	for i, p := range patches {
		found := false
		for n, o := range out {
			if o.GetKind() != p.Target.Kind || o.GetName() != p.Target.Name {
				continue
			}
			found = true
			patched, err := patchObject(o, p)
			if err != nil {
				return nil, deploy.Errorf(deploy.Invalid, "%s: patches[%d] cannot be applied to %s %s: %w", o.Origin, i, p.Target.Kind, p.Target.Name, err)
			}
			out[n] = patched
		}
		if !found {
			return nil, deploy.Errorf(deploy.Invalid, "patches[%d] is for %s %s, which the application does not have: correct its target", i, p.Target.Kind, p.Target.Name)
		}
	}
	return out, nil
}

// checkPatches returns an error for each patch whose target is not part of the variant.
func (v Variant) checkPatches(copied []manifest.Object) error {
	var problems []error
	for i, p := range v.Patches {
		used := false
		for _, o := range copied {
			used = used || o.GetKind() == p.Target.Kind && o.GetName() == p.Target.Name
		}
		if !used {
			problems = append(problems, deploy.Errorf(deploy.Invalid,
				"patches[%d] changes %s %s, which is no part of the %s: that is its workloads, the ConfigMaps and Secrets they use, and with createService their Services; remove the patch",
				i, p.Target.Kind, p.Target.Name, v.Name))
		}
	}
	return errors.Join(problems...)
}

// patchObject returns a patched copy of an object.
func patchObject(o manifest.Object, p kubernetes.Patch) (manifest.Object, error) {
	root := nodeOf(o.Object)
	var err error
	if p.Target.DocumentRoot == "" {
		root, err = patchNode(root, p.Ops)
	} else {
		err = patchDocuments(root, p)
	}
	if err != nil {
		return o, err
	}
	content, err := contentOf(root)
	if err != nil {
		return o, err
	}
	patched := o.Clone()
	patched.Object = content
	if manifest.Ref(patched.Unstructured) != manifest.Ref(o.Unstructured) {
		return o, errors.New("a patch may not make it another object: apiVersion, kind, namespace and name stay")
	}
	return patched, nil
}

// patchNode applies ops to an object and returns its new root. A text-regex operation works
// on the object's YAML.
func patchNode(root *yaml.Node, ops []kubernetes.PatchOp) (*yaml.Node, error) {
	for i, op := range ops {
		if op.Op != kubernetes.TextRegex {
			if err := change(root, op); err != nil {
				return nil, opError(i, op, err)
			}
			continue
		}
		text, err := yamlFormat{}.write(root)
		if err == nil {
			text, err = replaceText(text, op)
		}
		if err == nil {
			root, err = yamlFormat{}.read(text)
		}
		if err != nil {
			return nil, opError(i, op, err)
		}
	}
	return root, nil
}

func opError(i int, op kubernetes.PatchOp, err error) error {
	return fmt.Errorf("ops[%d], %s %s: %w", i, op.Op, op.Path, err)
}

var errNothing = errors.New("nothing stands there")

// change applies one operation, other than text-regex, to a document. It returns errNothing
// if the path matches nothing.
func change(root *yaml.Node, op kubernetes.PatchOp) error {
	p, err := parsePath(op.Path)
	if err != nil {
		return err
	}
	if op.Op == kubernetes.YAMLRemove {
		if p.remove(root) == 0 {
			return errNothing
		}
		return nil
	}
	value, err := formatOf(op.Op).read(op.Value)
	if err != nil {
		return fmt.Errorf("value: %w", err)
	}
	found := p.find(root, op.Op == kubernetes.YAMLAdd)
	if len(found) == 0 {
		return errNothing
	}
	for _, n := range found {
		if op.Op != kubernetes.YAMLAdd {
			replace(n, value)
		} else if err := add(n, value); err != nil {
			return err
		}
	}
	return nil
}

// replace overwrites a node with a copy of value and keeps the node's comments.
func replace(n, value *yaml.Node) {
	made := clone(value)
	made.HeadComment, made.LineComment, made.FootComment = n.HeadComment, n.LineComment, n.FootComment
	*n = *made
}

// add merges a value into a node. A list gets the value (or the items of a list value)
// appended, a mapping gets the fields of a mapping value set, and null is replaced. Other
// combinations are an error.
func add(n, value *yaml.Node) error {
	switch n = follow(n); {
	case isNull(n):
		replace(n, value)
	case n.Kind == yaml.SequenceNode && value.Kind == yaml.SequenceNode:
		n.Content = append(n.Content, clone(value).Content...)
	case n.Kind == yaml.SequenceNode:
		n.Content = append(n.Content, clone(value))
	case n.Kind == yaml.MappingNode && value.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(value.Content); i += 2 {
			setKey(n, value.Content[i].Value, clone(value.Content[i+1]))
		}
	default:
		return fmt.Errorf("a value stands there already: use %s to change it", kubernetes.YAMLReplace)
	}
	return nil
}

// replaceText replaces every match of the regular expression op.Path by op.Value. It returns
// an error if there is no match.
func replaceText(text string, op kubernetes.PatchOp) (string, error) {
	expr, err := regexp.Compile(op.Path)
	if err != nil {
		return "", err
	}
	if !expr.MatchString(text) {
		return "", errors.New("nothing matches")
	}
	return expr.ReplaceAllString(text, op.Value), nil
}
