package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"gopkg.in/yaml.v3"
)

// config describes an agent with replicas, and how to disturb it.
type config struct {
	API        []string `yaml:"api"`        // the address of the control API of each replica, without TLS
	KeyFile    string   `yaml:"keyFile"`    // an API key of the role Admin
	WorkTree   string   `yaml:"workTree"`   // of the repository that the agent follows, from which git push works
	Kubeconfig string   `yaml:"kubeconfig"` // of the cluster
	Namespace  string   `yaml:"namespace"`  // for the applications
	Image      string   `yaml:"image"`      // of the pods
	Scripts    string   `yaml:"scripts"`    // a file to which the scripts of all replicas may write: see scripts.allowPaths
	Receiver   string   `yaml:"receiver"`   // an address to listen on; a webhook of the agent leads there
	Faults     []fault  `yaml:"faults"`
}

// fault disturbs a replica, or what the replicas need.
type fault struct {
	Name string `yaml:"name"`
	Do   string `yaml:"do"`   // a shell command
	Undo string `yaml:"undo"` // a shell command, after a time between min and max
	Min  duration
	Max  duration
	// Takeover: Do ends a replica at once, and the others take over. It prints the end of the name that
	// the replica has in pipectl status, such as its process ID.
	Takeover bool `yaml:"takeover"`
	// Suspends: Do suspends a replica, whose script can run on meanwhile.
	Suspends bool `yaml:"suspends"`
}

type duration = time.Duration

// load reads a configuration.
func load(file string) (config, error) {
	var c config
	data, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	for name, value := range map[string]string{
		"keyFile": c.KeyFile, "workTree": c.WorkTree, "namespace": c.Namespace, "image": c.Image, "scripts": c.Scripts, "receiver": c.Receiver,
	} {
		if value == "" {
			err = errors.Join(err, fmt.Errorf("%s: %s is required", file, name))
		}
	}
	if len(c.API) == 0 {
		err = errors.Join(err, fmt.Errorf("%s: api needs the address of a replica", file))
	}
	for _, f := range c.Faults {
		if f.Name == "" || f.Do == "" || f.Max < f.Min {
			err = errors.Join(err, fmt.Errorf("%s: a fault needs name and do, and a max that is not below min: %+v", file, f))
		}
	}
	return c, err
}
