package opentofu

import (
	"strconv"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/c785c783/piped/piped/config/opentofu"
)

// The configuration has checked the flags, so their values can be read.

func isOn(value string) bool {
	on, _ := strconv.ParseBool(value)
	return on
}

func number(value string) int {
	n, _ := strconv.Atoi(value)
	return n
}

func initOptions(flags []opentofu.Flag) (out []tfexec.InitOption) {
	for _, f := range flags {
		switch f.Name {
		case "-backend-config":
			out = append(out, tfexec.BackendConfig(f.Value))
		case "-upgrade":
			out = append(out, tfexec.Upgrade(isOn(f.Value)))
		case "-reconfigure":
			out = append(out, tfexec.Reconfigure(isOn(f.Value)))
		}
	}
	return out
}

func planOptions(flags []opentofu.Flag) (out []tfexec.PlanOption) {
	for _, f := range flags {
		switch f.Name {
		case "-lock":
			out = append(out, tfexec.Lock(isOn(f.Value)))
		case "-lock-timeout":
			out = append(out, tfexec.LockTimeout(f.Value))
		case "-parallelism":
			out = append(out, tfexec.Parallelism(number(f.Value)))
		case "-refresh":
			out = append(out, tfexec.Refresh(isOn(f.Value)))
		case "-target":
			out = append(out, tfexec.Target(f.Value))
		case "-replace":
			out = append(out, tfexec.Replace(f.Value))
		}
	}
	return out
}

func applyOptions(flags []opentofu.Flag) (out []tfexec.ApplyOption) {
	for _, f := range flags {
		switch f.Name {
		case "-lock":
			out = append(out, tfexec.Lock(isOn(f.Value)))
		case "-lock-timeout":
			out = append(out, tfexec.LockTimeout(f.Value))
		case "-parallelism":
			out = append(out, tfexec.Parallelism(number(f.Value)))
		}
	}
	return out
}
