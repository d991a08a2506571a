package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/c785c783/piped/piped/git/gittest"
)

// The applications that the script changes.
const (
	subject = "simple"
	worked  = "secret"   // is deployed again and again after the script
	gated   = "approval" // has a pipeline that waits for a person

	firstMessage = "Add the applications"

	encrypted  = "secret" // has an encrypted password
	password   = "example-password"
	kustomized = "kustomize" // has a generated ConfigMap
	// What stands in it, and what a commit changes it to.
	firstGreeting = "hello from the overlay"
	nextGreeting  = "hello again"
)

// repository is the bare Git repository the agent watches.
type repository struct {
	*gittest.Repo
	apps   int               // how many applications it holds
	files  map[string]string // as they were first
	images images
}

// newRepository makes it at dir, with the content of the folder apps, as it has to be on
// the stage, as its first commit.
func newRepository(dir, apps string, on stage) (*repository, error) {
	r := &repository{files: map[string]string{}, images: on.images}
	if err := r.read(os.DirFS(apps), on); err != nil {
		return nil, fmt.Errorf("read the applications of %s: %w", apps, err)
	}
	var err error
	if r.Repo, err = gittest.NewRepo(dir); err != nil {
		return nil, err
	}
	if err := r.hurry(on); err != nil {
		return nil, err
	}
	if err := r.Write(r.files); err != nil {
		return nil, err
	}
	_, err = r.Commit(firstMessage)
	return r, err
}

// read takes the files of the applications that are on the stage.
func (r *repository) read(from fs.FS, on stage) error {
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		app, file, _ := strings.Cut(name, "/")
		if err != nil || entry.IsDir() || !on.plays(app) {
			return err
		}
		text, err := fs.ReadFile(from, name)
		r.files[name] = on.adapt(string(text))
		if file == "app.pipecd.yaml" {
			r.apps++
		}
		return err
	})
	if err == nil && r.apps == 0 {
		err = errors.New("there are none")
	}
	return err
}

// patience says how long the steps of a canary's traffic take in the example, and
// haste how long in the demo.
const (
	patience = "interval: 5m"
	haste    = "interval: 2s"
)

// hurry makes the canary's steps fit for a demo.
func (r *repository) hurry(on stage) error {
	file := routed + "/app.pipecd.yaml"
	if !on.plays(routed) {
		return nil
	}
	if !strings.Contains(r.files[file], patience) {
		return fmt.Errorf("%s does not hold %q", file, patience)
	}
	r.files[file] = strings.Replace(r.files[file], patience, haste, 1)
	return nil
}

// commitImage commits another tag of an application's image.
func (r *repository) commitImage(app, tag, message string) error {
	return r.commitChange(workload(app), r.images.at(r.images.first), r.images.at(tag), message)
}

// commitChange commits a file as it was first, with another text in one place.
func (r *repository) commitChange(file, was, is, message string) error {
	first := r.files[file]
	text := strings.Replace(first, was, is, 1)
	if text == first {
		return fmt.Errorf("%s does not hold %q", file, was)
	}
	if err := r.Write(map[string]string{file: text}); err != nil {
		return err
	}
	_, err := r.Commit(message)
	return err
}

// ciphertext is how the password stands in Git, shortened.
func (r *repository) ciphertext() (string, error) {
	file := encrypted + "/app.pipecd.yaml"
	_, rest, found := strings.Cut(r.files[file], "password: ")
	if !found || len(rest) < 40 {
		return "", fmt.Errorf("%s has no encrypted password", file)
	}
	return file + "  password: " + rest[:40] + "...", nil
}

// workload is the file of an application's Deployment.
func workload(app string) string { return app + "/deployment.yaml" }

func shortHash(hash string) string { return hash[:min(7, len(hash))] }
