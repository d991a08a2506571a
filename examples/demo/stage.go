package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// badTag is one that no registry has. The simulated nodes say of it what a real node says
// of an image that is not there.
const badTag = "does-not-exist"

// images are what the workloads run, one after the other.
type images struct {
	name  string
	first string // the tags
	hand  string // is set by hand
	next  string
	fixed string
	later string // what a person is proposed to deploy
}

// at returns an image with its tag.
func (i images) at(tag string) string { return i.name + ":" + tag }

// stage is where the demo plays: on a control plane that it starts, whose simulated nodes
// run any image, or on somebody's own cluster, in a namespace that it makes and removes.
type stage struct {
	kubeconfig string // of the own cluster; "" is the one that the demo starts
	namespace  string
	images     images
	timeout    time.Duration // of a deployment
}

// written is what examples/apps says of the same.
var written = stage{
	namespace: "demo", timeout: 2 * time.Minute,
	images: images{name: "registry.example/web", first: "v1.0.0", hand: "v1.0.1", next: "v1.1.0", fixed: "v1.1.1", later: "v2.0.0"},
}

// tagCount is how many tags an image of one's own needs.
const tagCount = 5

// ownStage is a stage on somebody's cluster, which has to be able to pull the tags of the
// image.
func ownStage(kubeconfig, image, tags string) (stage, error) {
	all := strings.Split(tags, ",")
	unique := slices.Compact(slices.Sorted(slices.Values(all)))
	if len(all) != tagCount || len(unique) != tagCount || slices.Contains(all, "") || path.Dir(image) == "." {
		return stage{}, fmt.Errorf("the demo needs an image REGISTRY/NAME and five different tags of it, separated by commas; these are %q and %q", image, tags)
	}
	id := make([]byte, 4)
	if _, err := rand.Read(id); err != nil {
		return stage{}, err
	}
	return stage{
		kubeconfig: kubeconfig, namespace: "piped-demo-" + hex.EncodeToString(id), timeout: 5 * time.Minute,
		images: images{image, all[0], all[1], all[2], all[3], all[4]},
	}, nil
}

// own reports whether the cluster is somebody's own.
func (s stage) own() bool { return s.kubeconfig != "" }

// plays reports whether an application is deployed here: on somebody's cluster only those
// of the script that need nothing but built-in kinds and one image.
func (s stage) plays(app string) bool {
	return !s.own() || slices.Contains([]string{subject, worked, gated, kustomized, healing, previewed}, app)
}

// adapt returns a file of the applications as it has to be here. An image of a real
// registry takes longer to be there than a simulated one.
func (s stage) adapt(text string) string {
	if !s.own() {
		return text
	}
	return strings.NewReplacer(
		"namespace: "+written.namespace+"\n", "namespace: "+s.namespace+"\n",
		written.images.name, s.images.name,
		path.Dir(written.images.name), path.Dir(s.images.name),
		"newTag: "+written.images.first, fmt.Sprintf("newTag: %q", s.images.first), // 3.10 would be a number
		written.images.first, s.images.first,
		"progressDeadlineSeconds: 15", "progressDeadlineSeconds: 30",
	).Replace(text)
}

// later returns the tag of the nth commit after the script. Each differs from the one
// before it, and from the first.
func (s stage) later(n int) string {
	if !s.own() {
		return fmt.Sprintf("v3.%d.0", n)
	}
	tags := []string{s.images.hand, s.images.next, s.images.fixed}
	return tags[n%len(tags)]
}
