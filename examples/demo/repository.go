package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/c785c783/piped/piped/git/gittest"
)

// The application the script changes and the images it gives it. The simulated
// nodes run any image, but of a tag "does-not-exist" they say what a real node
// says of an image that is not there.
const (
	subject   = "simple"
	workload  = "simple/deployment.yaml"
	imageName = "registry.example/web"
	firstTag  = "v1.0.0"
	nextTag   = "v1.1.0"
	badTag    = "does-not-exist"
	mendedTag = "v1.1.1"

	firstMessage = "Add the applications"
)

// repository is the bare Git repository the agent watches.
type repository struct {
	*gittest.Repo
	apps     int    // how many applications it holds
	manifest string // of the subject's workload, with the first image
}

// newRepository makes it at dir, with the content of the folder apps as its
// first commit.
func newRepository(dir, apps string) (*repository, error) {
	files := os.DirFS(apps)
	found, err := fs.Glob(files, "*/app.pipecd.yaml")
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("no applications */app.pipecd.yaml in %s", apps)
	}
	manifest, err := fs.ReadFile(files, workload)
	if err != nil {
		return nil, fmt.Errorf("read the manifest to change: %w", err)
	}
	repo, err := gittest.NewRepo(dir)
	if err != nil {
		return nil, err
	}
	if err := repo.CopyDir(files, "."); err != nil {
		return nil, err
	}
	_, err = repo.Commit(firstMessage)
	return &repository{Repo: repo, apps: len(found), manifest: string(manifest)}, err
}

// commitImage commits another tag of the subject's image.
func (r *repository) commitImage(tag, message string) error {
	manifest := strings.Replace(r.manifest, imageName+":"+firstTag, imageName+":"+tag, 1)
	if manifest == r.manifest {
		return fmt.Errorf("%s does not have the image %s:%s", workload, imageName, firstTag)
	}
	if err := r.Write(map[string]string{workload: manifest}); err != nil {
		return err
	}
	_, err := r.Commit(message)
	return err
}

func shortHash(hash string) string { return hash[:min(7, len(hash))] }
