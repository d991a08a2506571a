package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/c785c783/piped/piped/git/gittest"
)

// The applications the script changes and the images it gives them. The simulated
// nodes run any image, but of a tag "does-not-exist" they say what a real node
// says of an image that is not there.
const (
	subject   = "simple"
	worked    = "secret"   // is deployed again and again after the script
	gated     = "approval" // has a pipeline that waits for a person
	imageName = "registry.example/web"
	firstTag  = "v1.0.0"
	nextTag   = "v1.1.0"
	badTag    = "does-not-exist"
	fixedTag  = "v1.1.1"

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
	apps  int   // how many applications it holds
	files fs.FS // as they were first
}

// newRepository makes it at dir, with the content of the folder apps as its
// first commit.
func newRepository(dir, apps string) (*repository, error) {
	files := os.DirFS(apps)
	found, err := fs.Glob(files, "*/app.pipecd.yaml")
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("no applications */app.pipecd.yaml in %s", apps)
	}
	repo, err := gittest.NewRepo(dir)
	if err != nil {
		return nil, err
	}
	if err := repo.CopyDir(files, "."); err != nil {
		return nil, err
	}
	r := &repository{Repo: repo, apps: len(found), files: files}
	if err := r.hurry(); err != nil {
		return nil, err
	}
	_, err = r.Commit(firstMessage)
	return r, err
}

// patience says how long the steps of a canary's traffic take in the example, and
// haste how long in the demo.
const (
	patience = "interval: 5m"
	haste    = "interval: 2s"
)

// hurry makes the canary's steps fit for a demo.
func (r *repository) hurry() error {
	file := routed + "/app.pipecd.yaml"
	text, err := fs.ReadFile(r.files, file)
	if err != nil {
		return fmt.Errorf("read the canary's configuration: %w", err)
	}
	if !strings.Contains(string(text), patience) {
		return fmt.Errorf("%s does not hold %q", file, patience)
	}
	return r.Write(map[string]string{file: strings.Replace(string(text), patience, haste, 1)})
}

// commitImage commits another tag of an application's image.
func (r *repository) commitImage(app, tag, message string) error {
	return r.commitChange(workload(app), imageName+":"+firstTag, imageName+":"+tag, message)
}

// commitChange commits a file as it was first, with another text in one place.
func (r *repository) commitChange(file, was, is, message string) error {
	first, err := fs.ReadFile(r.files, file)
	if err != nil {
		return fmt.Errorf("read the file to change: %w", err)
	}
	text := strings.Replace(string(first), was, is, 1)
	if text == string(first) {
		return fmt.Errorf("%s does not hold %q", file, was)
	}
	if err := r.Write(map[string]string{file: text}); err != nil {
		return err
	}
	_, err = r.Commit(message)
	return err
}

// ciphertext is how the password stands in Git, shortened.
func (r *repository) ciphertext() (string, error) {
	file := encrypted + "/app.pipecd.yaml"
	text, err := fs.ReadFile(r.files, file)
	if err != nil {
		return "", fmt.Errorf("read the encrypted password: %w", err)
	}
	_, rest, found := strings.Cut(string(text), "password: ")
	if !found || len(rest) < 40 {
		return "", fmt.Errorf("%s has no encrypted password", file)
	}
	return file + "  password: " + rest[:40] + "...", nil
}

// workload is the file of an application's Deployment.
func workload(app string) string { return app + "/deployment.yaml" }

func shortHash(hash string) string { return hash[:min(7, len(hash))] }
