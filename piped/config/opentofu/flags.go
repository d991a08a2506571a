package opentofu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// CommandFlags are flags by command. Only flags that cannot change which plan is applied, and what
// the agent reads are permitted.
type CommandFlags struct {
	// Shared are for every command: `-lock`, `-lock-timeout`. Flags about the output have no effect.
	Shared []string `yaml:"shared"`
	// Init are for `init`: `-backend-config`, `-upgrade`, `-reconfigure`.
	Init []string `yaml:"init"`
	// Plan are for `plan`: `-lock`, `-lock-timeout`, `-parallelism`, `-refresh`, `-target`, `-replace`.
	Plan []string `yaml:"plan"`
	// Apply are for `apply`: `-lock`, `-lock-timeout`, `-parallelism`.
	Apply []string `yaml:"apply"`
}

// Flag is one flag of a command, such as -parallelism=4. The value of a switch is true or false.
type Flag struct{ Name, Value string }

// FlagSet are the flags of the commands.
type FlagSet struct{ Init, Plan, Apply []Flag }

// flagKind is what value a flag has.
type flagKind int

const (
	isSwitch flagKind = iota
	isNumber
	isDuration
	isText
	isSetting
)

var (
	sharedFlags = map[string]flagKind{"-lock": isSwitch, "-lock-timeout": isDuration}
	initFlags   = map[string]flagKind{"-backend-config": isSetting, "-upgrade": isSwitch, "-reconfigure": isSwitch}
	planFlags   = map[string]flagKind{"-lock": isSwitch, "-lock-timeout": isDuration, "-parallelism": isNumber, "-refresh": isSwitch, "-target": isText, "-replace": isText}
	applyFlags  = map[string]flagKind{"-lock": isSwitch, "-lock-timeout": isDuration, "-parallelism": isNumber}
	// outputFlags are permitted and have no effect, since the agent decides about the output.
	outputFlags = []string{"-no-color", "-compact-warnings", "-input", "-auto-approve", "-concise"}
)

// Flags returns the flags of the commands. Those that are not permitted, which Complete has
// reported, are left out.
func (f CommandFlags) Flags() (out FlagSet) {
	read := func(flags []string, known map[string]flagKind) (out []Flag) {
		for _, flag := range flags {
			if parsed, why := parseFlag(flag, known); why == "" && parsed.Name != "" {
				out = append(out, parsed)
			}
		}
		return out
	}
	shared := read(f.Shared, sharedFlags)
	out.Init = read(f.Init, initFlags)
	out.Plan = append(slices.Clone(shared), read(f.Plan, planFlags)...)
	out.Apply = append(slices.Clone(shared), read(f.Apply, applyFlags)...)
	return out
}

func (f CommandFlags) complete(d *strict.Document, field string) {
	check := func(list string, flags []string, known map[string]flagKind) {
		for i, flag := range flags {
			if _, why := parseFlag(flag, known); why != "" {
				d.Problemf(fmt.Sprintf("%s.%s[%d]", field, list, i), "%s", why)
			}
		}
	}
	check("shared", f.Shared, sharedFlags)
	check("init", f.Init, initFlags)
	check("plan", f.Plan, planFlags)
	check("apply", f.Apply, applyFlags)
}

// parseFlag returns a flag, the zero Flag for one without effect, or what is wrong with it.
func parseFlag(text string, known map[string]flagKind) (_ Flag, why string) {
	name, value, written := strings.Cut(text, "=")
	if strings.HasPrefix(name, "--") {
		name = name[1:]
	}
	kind, ok := known[name]
	switch {
	case slices.Contains(outputFlags, name):
		return Flag{}, ""
	case !ok:
		names := make([]string, 0, len(known))
		for k := range known {
			names = append(names, k)
		}
		slices.Sort(names)
		return Flag{}, fmt.Sprintf("%q is not possible here; expected %s", name, strict.Alternatives(names))
	case kind == isSwitch && !written:
		value = "true"
	case !written:
		return Flag{}, fmt.Sprintf("expected %s=value in one item", name)
	}
	switch kind {
	case isSwitch:
		if _, err := strconv.ParseBool(value); err != nil {
			return Flag{}, fmt.Sprintf("%s: expected true or false, found %q", name, value)
		}
	case isNumber:
		if n, err := strconv.Atoi(value); err != nil || n < 1 {
			return Flag{}, fmt.Sprintf("%s: expected a number from 1 on, found %q", name, value)
		}
	case isSetting:
		if key, _, ok := strings.Cut(value, "="); !ok || key == "" {
			return Flag{}, fmt.Sprintf("%s: expected name=value, found %q", name, value)
		}
	case isDuration:
		if _, err := time.ParseDuration(value); err != nil {
			return Flag{}, fmt.Sprintf("%s: expected a duration such as 30s, found %q", name, value)
		}
	}
	return Flag{name, value}, ""
}
