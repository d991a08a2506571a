package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kustomize/api/types"
)

// Generators, transformers and validators are configurations of built-in plugins. They can
// refer to files, and Kustomize would download those with the form of a URL. The plan checks
// their text, so they must be in files or in the kustomization itself, and not the result of a
// kustomization that changes them.

// pluginFiles returns the keys, in any case, whose values are names of files for Kustomize.
func pluginFiles() []string {
	return []string{"path", "paths", "file", "files", "env", "envs", "targetFilePath"}
}

// plugin checks an entry that is a configuration, the name of its file, or a directory with a
// kustomization of such files.
func (r *rewriter) plugin(field string, entry *string) {
	if isMapping(*entry) {
		r.config(field, []byte(*entry))
		*entry = inline(*entry)
		return
	}
	name, ok := r.here(*entry)
	switch {
	case !ok && isRemote(*entry):
		r.errorf(field, "%s: generators, transformers and validators are not fetched; commit the file", redacted(*entry))
	case !r.local(field, entry):
	case isDir(r.mount, name):
		r.pluginDirectory(field, name)
	default:
		r.pluginFile(field, name)
	}
}

func (r *rewriter) pluginFile(field, name string) {
	data, err := readFile(r.mount, name, r.plan.left.Bytes)
	if err != nil {
		r.fail(field, err)
		return
	}
	r.plan.left.Bytes -= int64(len(data))
	r.config(field, data)
}

// pluginDirectory checks the plugins in a directory, whose kustomization may only list
// resources.
func (r *rewriter) pluginDirectory(field, dir string) {
	k, file, err := r.plan.read(r.mount, dir)
	if err != nil {
		r.fail(field, err)
		return
	}
	only := &kustomization{Kustomization: types.Kustomization{TypeMeta: k.TypeMeta, MetaData: k.MetaData, Resources: k.Resources}}
	if !reflect.DeepEqual(k, only) {
		r.errorf(field, "%s: a kustomization of generators, transformers or validators may have only resources", file)
		return
	}
	inner := &rewriter{plan: r.plan, mount: r.mount, dir: dir, file: file}
	for i, entry := range k.Resources {
		inner.plugin(fmt.Sprintf("resources[%d]", i), &entry)
	}
	if inner.err != nil && r.err == nil {
		r.err = inner.err
	}
	r.descend(field, r.mount, dir)
}

// config checks the documents of a plugin configuration.
func (r *rewriter) config(field string, data []byte) {
	if err := checkAliases(data); err != nil {
		r.errorf(field, "%w", err)
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.errorf(field, "not valid YAML: %s", firstLine(err.Error()))
			return
		}
		r.configNode(field, &doc, false)
	}
}

// configNode checks the files that the nodes below n refer to. named means that strings are
// names of files.
func (r *rewriter) configNode(field string, n *yaml.Node, named bool) {
	switch n.Kind {
	case yaml.AliasNode:
		r.configNode(field, n.Alias, named)
	case yaml.ScalarNode:
		if named {
			r.configFile(field, n.Value)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := scalar(n.Content[i]), n.Content[i+1]
			if key == "kind" && scalar(value) == helmGenerator {
				r.errorf(field, "%s: name its file in generators of the kustomization itself", helmGenerator)
			}
			if strings.EqualFold(key, "fieldSpecs") { // its paths are paths of fields
				continue
			}
			isFile := slices.ContainsFunc(pluginFiles(), func(known string) bool { return strings.EqualFold(known, key) })
			r.configNode(field, value, named || isFile)
		}
	default:
		for _, child := range n.Content {
			r.configNode(field, child, named)
		}
	}
}

func scalar(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n.Value
}

// configFile reports an error for a file outside of the repository. text is file or key=file.
func (r *rewriter) configFile(field, text string) {
	for _, file := range []string{text, text[strings.LastIndex(text, "=")+1:]} {
		u, err := url.Parse(file)
		name := path.Join(r.dir, file)
		switch {
		case err == nil && (u.Scheme == "http" || u.Scheme == "https"):
			r.errorf(field, "%s: files are not fetched; commit the file", redacted(file))
		case path.IsAbs(file) || name == ".." || strings.HasPrefix(name, "../"):
			r.errorf(field, "%q leads out of the repository", file)
		}
	}
}
