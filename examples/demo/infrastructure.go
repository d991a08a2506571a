package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The application of OpenTofu, its name in the example, and where its files say that its state is.
const (
	infrastructure = "network"
	exampleName    = "name: tofu-approval"
	exampleStates  = "/var/lib/piped/states"
)

// tofuProvider is the platform provider of the application of OpenTofu.
const tofuProvider = `  cloudProviders:
    - name: tofu
      type: OPENTOFU
      config:
        program: %q
`

// addInfrastructure commits an application of OpenTofu, whose plan a person approves before it is
// applied.
func (d *demo) addInfrastructure(ctx context.Context) error {
	states := filepath.Join(d.dir, "states")
	if err := d.repo.addInfrastructure(d.infrastructure, states); err != nil {
		return err
	}
	d.reportCommit(infrastructureMessage)
	d.out.gap()
	waiting, err := d.awaitApproval(ctx, infrastructure)
	if err != nil {
		return err
	}
	d.out.gap()
	if err := d.agent.pipectl(ctx, d.out, "deployment", "plan", "--deployment-id", waiting, "--diff"); err != nil {
		return err
	}
	d.out.fact("page", d.page()+"/deployments/"+waiting+"?tab=plan")
	d.out.gap()
	if err := d.approveDeployment(ctx, waiting, "the plan is what was asked for"); err != nil {
		return err
	}
	if _, err := d.expect(ctx, infrastructure, onCommit, success); err != nil {
		return err
	}
	return d.expectState(filepath.Join(states, "approval.tfstate"))
}

const infrastructureMessage = "Add infrastructure"

// addInfrastructure commits the files of a folder as an application whose state is in a directory.
func (r *repository) addInfrastructure(folder, states string) error {
	from := os.DirFS(folder)
	names, err := fs.Glob(from, "*")
	if err != nil {
		return err
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return fmt.Errorf("read the application of OpenTofu: %w", err)
		}
		files[infrastructure+"/"+name] = strings.NewReplacer(exampleStates, states, exampleName, "name: "+infrastructure).Replace(string(text))
	}
	if err := r.Write(files); err != nil {
		return err
	}
	r.apps++
	_, err = r.Commit(infrastructureMessage)
	return err
}

// expectState checks that the state has the resource of the application.
func (d *demo) expectState(file string) error {
	state, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	if !strings.Contains(string(state), `"terraform_data"`) {
		d.differ("the state %s does not have the resource of %s", file, infrastructure)
		return nil
	}
	d.out.good("seen in the state: %s has the resource terraform_data.release", file)
	return nil
}
