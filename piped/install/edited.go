package install

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Annotations of the configuration that an installation has applied, which a person edits afterwards.
const (
	annotationApplied = "pipecd.dev/installed-config" // its digest
	annotationValues  = "pipecd.dev/installed-values" // its values, in JSON by field
)

// isConfig reports whether an object is the ConfigMap with the agent's configuration.
func isConfig(o *unstructured.Unstructured) bool {
	return o.GetKind() == "ConfigMap" && o.GetName() == "piped"
}

// edited reports whether the configuration in the cluster, nil without any, is neither the wanted one
// nor what the last installation applied.
func edited(live, wanted *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	now := digest(live)
	return now != digest(wanted) && now != live.GetAnnotations()[annotationApplied]
}

// checkConfig returns an error if the configuration in the cluster, nil without any, must not be left
// or replaced: it was edited, and does not have the values that this installation changes; or its
// agent would get another store.
func (i *Installer) checkConfig(live, wanted *unstructured.Unstructured) error {
	if live == nil {
		return nil
	}
	has, wants := valuesIn(live), valuesIn(wanted)
	recorded, known := recordedValues(live)
	stored := has
	if len(has) == 0 { // it is no YAML any more: the agent goes on with the one before
		stored = recorded
	}
	if was, will := storeOf(stored[fieldStore]), storeOf(wants[fieldStore]); len(stored) > 0 && was != will && !i.ChangeStore {
		return deploy.Errorf(deploy.Invalid, "the agent has its store in %s, and this variant has another one, %s, which does not have its history, API keys and pending commands: move the data first, "+
			"see \"From SQLite to replicas\" in docs/operations.md, or begin without it. Then repeat this with --change-store", was, will)
	}
	if i.ReplaceConfig || !edited(live, wanted) {
		return nil
	}
	if !known { // applied by others, such as kubectl
		recorded = map[string]string{}
		for _, field := range mounted {
			recorded[field] = has[field]
		}
	}
	if differ := missing(has, wants, recorded); len(differ) > 0 {
		return deploy.Errorf(deploy.Invalid, "%s was edited since the last installation, and this one needs other values in it: %s. Change them with: kubectl -n %s edit configmap piped; or give up the edits with --replace-config",
			manifest.Ref(live), strings.Join(differ, "; "), i.Namespace)
	}
	return nil
}

// recordedValues returns the values that the last installation applied.
func recordedValues(live *unstructured.Unstructured) (values map[string]string, known bool) {
	err := json.Unmarshal([]byte(live.GetAnnotations()[annotationValues]), &values)
	return values, err == nil
}

// missing returns what has to be set or removed in a configuration: the values that this installation
// changes, compared with those before it, and that the configuration does not have.
func missing(has, wants, was map[string]string) (out []string) {
	fields := maps.Clone(was)
	maps.Copy(fields, wants)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		value, set := wants[field]
		switch {
		case was[field] == value || has[field] == value:
		case set:
			out = append(out, "set "+field+" to "+value)
		default:
			out = append(out, "remove "+field)
		}
	}
	return out
}

// fieldStore is the field with the address of the database.
const fieldStore = "store.dsn"

// mounted are the fields that only some variants have, and that name what their pods mount.
var mounted = []string{fieldStore, "store.keyFile", "git.sshKeyFile", "git.knownHostsFile", "api.tlsCertFile", "api.tlsKeyFile", "web.tlsCertFile", "web.tlsKeyFile"}

// storeOf names the store with a DSN: the database, however it is connected to.
func storeOf(dsn string) string {
	if !isPostgres(dsn) {
		return "the SQLite store on its volume"
	}
	u, err := url.Parse(dsn)
	if err != nil { // it may contain a password
		return "a database of PostgreSQL"
	}
	return "the database " + strings.Trim(u.Path, "/") + " at " + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "5432"))
}

// valuesIn returns the values in a configuration by field, such as "repositories[0].branch". It is
// empty for one that is no YAML.
func valuesIn(o *unstructured.Unstructured) map[string]string {
	text, _, _ := unstructured.NestedString(o.Object, "data", "piped.yaml") // the API server has checked it
	var read struct {
		Spec map[string]any
	}
	out := map[string]string{}
	if yaml.Unmarshal([]byte(text), &read) != nil {
		return out
	}
	var add func(at string, value any)
	add = func(at string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, below := range value {
				add(strings.TrimPrefix(at+"."+key, "."), below)
			}
		case []any:
			for n, below := range value {
				add(fmt.Sprintf("%s[%d]", at, n), below)
			}
		default:
			out[at] = fmt.Sprint(value)
		}
	}
	add("", read.Spec)
	return out
}

// record notes what is applied. An edit between the read and the write is a conflict, and not lost.
func record(wanted, live *unstructured.Unstructured) {
	annotations := maps.Clone(wanted.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = digest(wanted)
	if values, err := json.Marshal(valuesIn(wanted)); err == nil { // strings by string
		annotations[annotationValues] = string(values)
	}
	wanted.SetAnnotations(annotations)
	if live != nil {
		wanted.SetResourceVersion(live.GetResourceVersion())
	}
}

// digest returns the digest of a ConfigMap's data.
func digest(o *unstructured.Unstructured) string {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data") // the API server has checked it
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, text := range []string{key, data[key]} {
			part := sha256.Sum256([]byte(text))
			sum.Write(part[:])
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}
