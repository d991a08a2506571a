package app

import (
	"strings"

	"github.com/c785c783/piped/executor/opentofu"
	"github.com/c785c783/piped/piped/deploy"
	programs "github.com/c785c783/piped/piped/opentofu"
)

// liveResource is a live resource with its module, "" for the root.
type liveResource struct {
	deploy.LiveObject
	module string
}

// liveResources returns the resources of a state with their health.
func (p *openTofuPlatform) liveResources(app deploy.Application, at deploy.GitPath, all []programs.StateResource) (out []liveResource) {
	members := p.watcher.Members(app.Provider)
	for _, r := range all {
		o := deploy.LiveObject{Cluster: app.Provider, Object: opentofu.Ref(at, r.Resource), Variant: "primary", Declared: true, Health: deploy.Healthy}
		if r.Tainted {
			o.Health, o.Reason = deploy.HealthDegraded, "it is tainted: the next apply replaces it"
		}
		if _, there := members.Get(o.Object); !there {
			o.Health, o.Reason = deploy.HealthMissing, "it is in the state and does not exist any more"
		}
		out = append(out, liveResource{o, r.Module})
	}
	return out
}

// tofuModule is a module with what is in it.
type tofuModule struct {
	object  deploy.LiveObject
	modules []*tofuModule
	objects []deploy.LiveObject
}

// modulesOf returns the resources of a state as a tree: those of the root, and its modules with
// their resources and modules. A module is as healthy as the least healthy resource in it.
func modulesOf(provider string, at deploy.GitPath, all []liveResource) []deploy.LiveObject {
	root := &tofuModule{}
	known := map[string]*tofuModule{"": root}
	var find func(address string) *tofuModule
	find = func(address string) *tofuModule {
		if m := known[address]; m != nil {
			return m
		}
		parent, name := splitModule(address)
		m := &tofuModule{object: deploy.LiveObject{
			Cluster: provider, Variant: "primary", Declared: true, Health: deploy.Healthy,
			Object: opentofu.Ref(at, programs.Resource{Module: parent, Type: "module", Name: name}),
		}}
		known[address] = m
		above := find(parent)
		above.modules = append(above.modules, m)
		return m
	}
	for _, r := range all {
		m := find(r.module)
		m.objects = append(m.objects, r.LiveObject)
	}
	return root.tree()
}

// tree returns what is in a module: its resources, and then its modules with theirs.
func (m *tofuModule) tree() []deploy.LiveObject {
	out := m.objects
	for _, below := range m.modules {
		o := below.object
		o.Children = below.tree()
		for _, child := range o.Children {
			if child.Health.WorseThan(o.Health) {
				o.Health = child.Health
			}
		}
		out = append(out, o)
	}
	return out
}

// splitModule splits the address of a module, such as module.net["a.b"].module.dns, into that of
// the module that calls it, and its name with its index.
func splitModule(address string) (parent, name string) {
	const mark = "module."
	begin, quoted := 0, false
	for i := 0; i < len(address); i++ {
		switch {
		case address[i] == '\\' && quoted:
			i++
		case address[i] == '"':
			quoted = !quoted
		case !quoted && address[i] == '.' && strings.HasPrefix(address[i+1:], mark):
			begin = i + 1
		}
	}
	return strings.TrimSuffix(address[:begin], "."), strings.TrimPrefix(address[begin:], mark)
}
