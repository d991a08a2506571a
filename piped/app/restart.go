package app

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
)

// restartSetting is a setting of the configuration that takes effect only after a restart.
type restartSetting struct {
	name    string   // for users
	fields  []string // of the file, with all below them
	differs func(a, b *config.Piped) bool
	copy    func(to, from *config.Piped)
}

// restartSettings are all settings that take effect only after a restart.
func restartSettings() []restartSetting {
	return []restartSetting{
		fixed("dataDir", func(p *config.Piped) *string { return &p.DataDir }, equal),
		fixed("store.dsn", func(p *config.Piped) *strict.Secret { return &p.Store.DSN }, strict.Secret.Equal),
		fixed("store.keyFile", func(p *config.Piped) *string { return &p.Store.KeyFile }, equal),
		fixed("store.replicas", func(p *config.Piped) *config.Replicas { return &p.Store.Replicas }, equal),
		fixed("projectID", func(p *config.Piped) *string { return &p.ProjectID }, equal),
		fixed("pipedID", func(p *config.Piped) *string { return &p.PipedID }, equal),
		fixed("api.address", func(p *config.Piped) *string { return &p.API.Address }, equal),
		fixed("api.auditFile", func(p *config.Piped) *string { return &p.API.AuditFile }, equal),
		fixed("api.insecure", func(p *config.Piped) *bool { return &p.API.Insecure }, equal),
		fixed("web.address", func(p *config.Piped) *string { return &p.Web.Address }, equal),
		fixed("web.insecure", func(p *config.Piped) *bool { return &p.Web.Insecure }, equal),
		fixed("planPreview", func(p *config.Piped) *config.PlanPreview { return &p.PlanPreview }, equal),
		fixed("previews", func(p *config.Piped) **config.Previews { return &p.Previews }, func(a, b *config.Previews) bool { return reflect.DeepEqual(a, b) }),
		fixed("telemetry", func(p *config.Piped) *config.Telemetry { return &p.Telemetry }, config.Telemetry.Same),
		fixed("debug", func(p *config.Piped) *config.Debug { return &p.Debug }, equal),
		fixed("scripts", func(p *config.Piped) *config.Scripts { return &p.Scripts }, func(a, b config.Scripts) bool { return reflect.DeepEqual(a, b) }),
		fixedTLS("api", func(p *config.Piped) tlsFiles {
			return tlsFiles{&p.API.TLSCertFile, &p.API.TLSKeyFile, &p.API.ClientCAFile}
		}),
		fixedTLS("web", func(p *config.Piped) tlsFiles {
			return tlsFiles{&p.Web.TLSCertFile, &p.Web.TLSKeyFile, &p.Web.ClientCAFile}
		}),
	}
}

func equal[T comparable](a, b T) bool { return a == b }

// fixed is a setting that is one field of the file.
func fixed[T any](field string, at func(*config.Piped) *T, same func(a, b T) bool) restartSetting {
	return restartSetting{
		name: field, fields: []string{field},
		differs: func(a, b *config.Piped) bool { return !same(*at(a), *at(b)) },
		copy:    func(to, from *config.Piped) { *at(to) = *at(from) },
	}
}

// tlsFiles are the fields with the files of a listener.
type tlsFiles struct{ cert, key, clientCA *string }

// fixedTLS is whether a listener has TLS. Other files take effect without a restart.
func fixedTLS(listener string, at func(*config.Piped) tlsFiles) restartSetting {
	cert, key := listener+".tlsCertFile", listener+".tlsKeyFile"
	return restartSetting{
		name: cert + " and " + key + " (TLS on or off)", fields: []string{cert, key, listener + ".clientCAFile"},
		differs: func(a, b *config.Piped) bool { return (*at(a).cert == "") != (*at(b).cert == "") },
		copy: func(to, from *config.Piped) {
			into, out := at(to), at(from)
			*into.cert, *into.key, *into.clientCA = *out.cert, *out.key, *out.clientCA
		},
	}
}

// needRestart returns the names of the changed settings that take effect only after a restart.
func needRestart(was, now *config.Piped) []string {
	var names []string
	for _, s := range restartSettings() {
		if s.differs(was, now) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

// withUnchanged returns a configuration with the settings of the former one that take effect only
// after a restart.
func withUnchanged(next, was *config.Piped) *config.Piped {
	out := *next
	out.InFile = maps.Clone(next.InFile)
	for _, s := range restartSettings() {
		if s.differs(next, was) {
			s.copy(&out, was)
			copyFields(out.InFile, was.InFile, s.fields)
		}
	}
	return &out
}

// copyFields makes the set of fields of one file contain of some fields what that of another does.
func copyFields(to, from map[string]bool, fields []string) {
	below := func(field string, _ bool) bool {
		return slices.ContainsFunc(fields, func(f string) bool { return field == f || strings.HasPrefix(field, f+".") })
	}
	maps.DeleteFunc(to, below)
	for field := range from {
		if below(field, true) {
			to[field] = true
		}
	}
}
