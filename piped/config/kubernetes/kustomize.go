package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// KustomizeBuild is what input.kustomizeOptions ask for.
type KustomizeBuild struct {
	// AnyFile lets a kustomization name files above its own directory. None is
	// ever read from outside the repository.
	AnyFile bool
	// KeepOrder leaves the objects in the order in which they are named; they are
	// sorted by kind otherwise, unless the kustomization says how.
	KeepOrder bool
	// Helm lets a kustomization name charts.
	Helm bool
	// KubeVersion and APIVersions are what these charts see of the cluster in place
	// of what they name themselves; "" and none leave it to them.
	KubeVersion string
	APIVersions []string
}

// KustomizeBuild returns what the options ask for. What is not honoured was
// refused when the configuration was read.
func (in Input) KustomizeBuild() KustomizeBuild {
	build, _ := kustomizeBuild(in.KustomizeOptions)
	return build
}

// kustomizeBuild reads flags of kustomize build, written with dashes or, as
// before Kustomize 4, with underscores, and says what is wrong with those that
// are not honoured.
func kustomizeBuild(options map[string]string) (build KustomizeBuild, problems map[string]string) {
	problems = map[string]string{}
	for _, flag := range slices.Sorted(maps.Keys(options)) {
		value := options[flag]
		switch strings.ReplaceAll(flag, "_", "-") {
		case "load-restrictor":
			switch value {
			case "LoadRestrictionsNone", "none":
				build.AnyFile = true
			case "LoadRestrictionsRootOnly", "rootOnly":
			default:
				problems[flag] = fmt.Sprintf("expected LoadRestrictionsNone or LoadRestrictionsRootOnly, found %q", value)
			}
		case "reorder":
			switch value {
			case "none":
				build.KeepOrder = true
			case "legacy":
			default:
				problems[flag] = fmt.Sprintf("expected legacy or none, found %q", value)
			}
		case "enable-helm":
			enabled, err := strconv.ParseBool(cmp.Or(value, "true"))
			if err != nil {
				problems[flag] = fmt.Sprintf("expected true, false or no value, found %q", value)
			}
			build.Helm = enabled
		case "helm-kube-version":
			build.KubeVersion = value
		case "helm-api-versions":
			build.APIVersions = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		case "helm-command", "helm-debug": // completeKustomize warns
		case "enable-alpha-plugins", "enable-exec", "enable-star", "network", "network-name", "mount", "env", "as-current-user":
			problems[flag] = "plugins, containers and programs are never run; use what Kustomize has built in, or SCRIPT_RUN"
		default:
			problems[flag] = "not a flag that is honoured here; expected load-restrictor, reorder, enable-helm, helm-kube-version or helm-api-versions"
		}
	}
	return build, problems
}

// completeKustomize reports the options that are not honoured.
func (in *Input) completeKustomize(d *strict.Document) {
	_, problems := kustomizeBuild(in.KustomizeOptions)
	for flag, why := range problems {
		d.Problemf("input.kustomizeOptions."+flag, "%s", why)
	}
	for flag := range in.KustomizeOptions {
		if slices.Contains([]string{"helm-command", "helm-debug"}, strings.ReplaceAll(flag, "_", "-")) {
			d.Warnf("input.kustomizeOptions."+flag, "has no effect: the agent renders charts itself")
		}
	}
}
