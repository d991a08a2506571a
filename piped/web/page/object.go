package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gopkg.in/yaml.v3"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// podLogLines is the number of the last lines of a container's log that the view shows at first.
const podLogLines = 1000

// objectView is one live object of an application, beside the tree of all.
type objectView struct {
	application *applicationView
	query       url.Values // "object" and what is shown of it
	object      *modelv1.LiveObject
	show        string
	body        templ.Component
	key         string // of the object and the body
	live        bool   // the body changes with the object
}

// objectPart is what can be shown of an object. read returns its content and the key of that.
type objectPart struct {
	name, label string
	podsOnly    bool
	live        bool
	read        func(*visit, *objectView) (templ.Component, string, error)
}

// objectParts are the parts in their order; the first is shown by default. The comparison is a
// dry run in the cluster, and a log has a stream of its own: both are not refreshed.
func objectParts() []objectPart {
	return []objectPart{
		{name: "live", label: "Live", live: true, read: readLiveYAML}, {name: "git", label: "Git", live: true, read: readGitYAML},
		{name: "diff", label: "Diff", read: readObjectDiff}, {name: "fields", label: "Fields", live: true, read: readManagers},
		{name: "events", label: "Events", live: true, read: readObjectEvents}, {name: "log", label: "Log", podsOnly: true, read: readPodLog},
	}
}

// objectValue returns the text that names an object in addresses.
func objectValue(o *modelv1.ObjectRef) string {
	return strings.Join([]string{o.GetGroup(), o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
}

// objectSelector returns the object that an address names.
func objectSelector(q url.Values) (*controlv1.ObjectSelector, error) {
	parts := strings.SplitN(q.Get("object"), "/", 4)
	if len(parts) != 4 || parts[1] == "" || parts[3] == "" {
		return nil, status.Errorf(codes.InvalidArgument, "object=%s does not name an object; write GROUP/KIND/NAMESPACE/NAME", q.Get("object"))
	}
	return &controlv1.ObjectSelector{Cluster: q.Get("cluster"), Group: &parts[0], Kind: parts[1], Namespace: &parts[2], Name: parts[3]}, nil
}

// objectPath returns the address of a part of an object in the view of its application.
func objectPath(a *applicationView, o *modelv1.ObjectRef, show string) string {
	q := url.Values{"tab": {"objects"}, "object": {objectValue(o)}}
	if o.GetCluster() != "" && o.GetCluster() != a.app.GetPlatformProvider() {
		q.Set("cluster", o.GetCluster())
	}
	if show != "" {
		q.Set("show", show)
	}
	return withQuery(applicationPath(a.id, a.app.GetName()), q)
}

// readObject reads the object that the address names, with the part that it names.
func (v *visit) readObject(a *applicationView, q url.Values) (*objectView, error) {
	o := &objectView{application: a, query: maps.Clone(q)}
	selector, err := objectSelector(q)
	if err != nil {
		return nil, err
	}
	part := objectParts()[0]
	for _, p := range objectParts() {
		if p.name == q.Get("show") {
			part = p
		}
	}
	o.show, o.live = part.name, part.live
	o.object = &modelv1.LiveObject{Object: &modelv1.ObjectRef{
		Cluster: selector.Cluster, Group: selector.GetGroup(), Kind: selector.Kind, Namespace: selector.GetNamespace(), Name: selector.Name,
	}}
	o.body, o.key, err = part.read(v, o)
	if err != nil && status.Code(err) != codes.Unauthenticated {
		o.body, o.key = v.failedTab(err)
		err = nil // the tree beside it stays usable
	}
	o.key = keyOf(o.object, o.key)
	return o, err
}

// detail reads the object with what else is wanted of it.
func (o *objectView) detail(v *visit, req *controlv1.GetLiveObjectRequest) (*controlv1.GetLiveObjectResponse, error) {
	selector, err := objectSelector(o.query)
	if err != nil {
		return nil, err
	}
	req.ApplicationId, req.Object = o.application.id, selector
	resp, err := v.control.GetLiveObject(v.ctx, req)
	if err == nil && resp.Object != nil {
		o.object = resp.Object
	}
	return resp, err
}

// tabs returns the links to the parts.
func (o *objectView) tabs(v *visit) []tab {
	var out []tab
	for _, p := range objectParts() {
		if p.podsOnly && (o.object.GetObject().GetKind() != "Pod" || !v.can("view-logs", o.application.id)) {
			continue
		}
		t := tab{label: p.label, path: objectPath(o.application, o.object.GetObject(), p.name), current: p.name == o.show}
		if p.name != "log" { // its script begins with the view
			t.more = opensObject(t.path)
		}
		out = append(out, t)
	}
	return out
}

// stream returns the address of the stream that refreshes the object; "" for none.
func (o *objectView) stream() string {
	if !o.live {
		return ""
	}
	return withQuery(objectBase(o.application)+"/live", url.Values{"object": o.query["object"], "cluster": o.query["cluster"], "show": {o.show}, "from": {keyOfParts(o.parts(nil))}})
}

func objectBase(a *applicationView) string {
	return "/applications/" + url.PathEscape(a.id) + "/object"
}

func (o *objectView) parts(v *visit) []part {
	return []part{{"object", o.key, objectContent(v, o)}}
}

func readLiveYAML(v *visit, o *objectView) (templ.Component, string, error) {
	resp, err := o.detail(v, &controlv1.GetLiveObjectRequest{})
	return objectYAML(resp.GetLiveYaml(), "It is not in the cluster.", resp.GetNote()), keyOf(resp), err
}

func readGitYAML(v *visit, o *objectView) (templ.Component, string, error) {
	resp, err := o.detail(v, &controlv1.GetLiveObjectRequest{})
	return objectYAML(resp.GetGitYaml(), "Git does not declare it.", resp.GetNote()), keyOf(resp), err
}

func readObjectDiff(v *visit, o *objectView) (templ.Component, string, error) {
	resp, err := o.detail(v, &controlv1.GetLiveObjectRequest{Diff: true})
	return objectDiff(v, resp), keyOf(resp), err
}

func readManagers(v *visit, o *objectView) (templ.Component, string, error) {
	resp, err := o.detail(v, &controlv1.GetLiveObjectRequest{ManagedFields: true})
	return objectManagers(v, resp), keyOf(resp), err
}

func readObjectEvents(v *visit, o *objectView) (templ.Component, string, error) {
	if _, err := o.detail(v, &controlv1.GetLiveObjectRequest{}); err != nil {
		return nil, "", err
	}
	selector, err := objectSelector(o.query)
	if err != nil {
		return nil, "", err
	}
	resp, err := v.control.ListObjectEvents(v.ctx, &controlv1.ListObjectEventsRequest{ApplicationId: o.application.id, Object: selector})
	return eventRows(v, o.application, resp), keyOf(resp), err
}

// readEvents reads the events of all objects of an application.
func readEvents(v *visit, a *applicationView) (templ.Component, string, error) {
	resp, err := v.control.ListObjectEvents(v.ctx, &controlv1.ListObjectEventsRequest{ApplicationId: a.id, Limit: 500})
	if err != nil {
		return nil, "", err
	}
	if a.query.Get("type") == "Warning" {
		resp.Events = slices.DeleteFunc(resp.Events, func(e *controlv1.ObjectEvent) bool { return e.Type != "Warning" })
	}
	return eventsTab(v, a, resp), keyOf(resp), nil
}

// podLog is the end of the log of a container.
type podLog struct {
	container  string
	containers []string // all of the pod
	previous   bool     // the log of the container's instance before this one
	lines      []logLine
	cursor     string // of the last line
}

func readPodLog(v *visit, o *objectView) (templ.Component, string, error) {
	resp, err := o.detail(v, &controlv1.GetLiveObjectRequest{})
	if err != nil {
		return nil, "", err
	}
	log := &podLog{previous: o.query.Has("previous")}
	log.containers, log.container = containersOf(resp.GetLiveYaml())
	log.container = cmp.Or(o.query.Get("container"), log.container)
	err = v.followPodLog(o.logRequest(log.container), func(m *controlv1.FollowPodLogsResponse) error {
		log.container = cmp.Or(m.Container, log.container)
		log.lines, log.cursor = append(log.lines, podLines(m.Lines)...), cmp.Or(m.Cursor, log.cursor)
		return nil
	})
	return podLogTab(o, log), "log", err
}

// logRequest returns a request for the last lines of a container's log.
func (o *objectView) logRequest(container string) *controlv1.FollowPodLogsRequest {
	pod := o.object.GetObject()
	return &controlv1.FollowPodLogsRequest{
		ApplicationId: o.application.id, Pod: pod.GetName(), Namespace: pod.GetNamespace(), Cluster: pod.GetCluster(), Container: container,
		Previous: o.query.Has("previous"), TailLines: podLogLines,
	}
}

// containersOf returns the containers of a pod, and the one whose log is shown by default.
func containersOf(podYAML string) (names []string, first string) {
	type container struct {
		Name string `yaml:"name"`
	}
	var pod struct {
		Metadata struct {
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"metadata"`
		Spec struct {
			Containers          []container `yaml:"containers"`
			InitContainers      []container `yaml:"initContainers"`
			EphemeralContainers []container `yaml:"ephemeralContainers"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal([]byte(podYAML), &pod); err != nil {
		return nil, "" // the API chooses
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers, pod.Spec.EphemeralContainers) {
		names = append(names, c.Name)
	}
	if len(names) > 0 {
		first = cmp.Or(pod.Metadata.Annotations["kubectl.kubernetes.io/default-container"], names[0])
	}
	return names, first
}

// followPodLog passes the parts of a log to a function.
func (v *visit) followPodLog(req *controlv1.FollowPodLogsRequest, each func(*controlv1.FollowPodLogsResponse) error) error {
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	stream, err := v.control.FollowPodLogs(ctx, req)
	for err == nil {
		var m *controlv1.FollowPodLogsResponse
		if m, err = stream.Recv(); err == nil {
			err = each(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// longer follows a line that is not shown whole.
const longer = " … (the line is longer)"

// podLines returns the lines of a container with their time of day.
func podLines(lines []*controlv1.PodLogLine) []logLine {
	var out []logLine
	for _, l := range lines {
		var line logLine
		line.text, line.coloured = colours(l.Text)
		if l.AtMs > 0 {
			line.at = time.UnixMilli(l.AtMs).UTC().Format("15:04:05")
		}
		if l.Truncated {
			line.text += longer
			if line.coloured != nil {
				line.coloured = append(line.coloured, coloured{text: longer})
			}
		}
		out = append(out, line)
	}
	return out
}

// podLogPath returns the address of the log of a container.
func podLogPath(o *objectView, log *podLog, more url.Values) string {
	q := url.Values{"object": o.query["object"], "cluster": o.query["cluster"], "container": {log.container}}
	if log.previous {
		q.Set("previous", "yes")
	}
	for name, values := range more {
		q[name] = values
	}
	return withQuery(objectBase(o.application)+"/log", q)
}

// containerPath returns the address of the view with another log of the pod.
func containerPath(o *objectView, container string, previous bool) string {
	path := objectPath(o.application, o.object.GetObject(), "log") + "&container=" + url.QueryEscape(container)
	if previous {
		path += "&previous=yes"
	}
	return path
}

// showPodLog returns the whole log of a container as text, or, to a script, what is added to it.
func showPodLog(v *visit) (*screen, error) {
	id, several, err := v.findApplication()
	if err != nil || several != nil {
		return nil, cmp.Or(err, errSeveral)
	}
	selector, err := objectSelector(v.query())
	if err != nil {
		return nil, err
	}
	req := &controlv1.FollowPodLogsRequest{
		ApplicationId: id, Pod: selector.Name, Namespace: selector.GetNamespace(), Cluster: selector.Cluster, Container: v.query().Get("container"),
		Previous: v.query().Has("previous"),
	}
	if v.query().Has("follow") {
		return nil, v.streamPodLog(req)
	}
	req.SinceMs = 1 // all that there is
	return nil, v.downloadPodLog(req)
}

// downloadPodLog writes the log as text while it is read.
func (v *visit) downloadPodLog(req *controlv1.FollowPodLogsRequest) error {
	began := false
	err := v.followPodLog(req, func(m *controlv1.FollowPodLogsResponse) error {
		if !began {
			began = true
			v.startText(req.Pod + "-" + m.Container + ".log")
		}
		for _, l := range m.Lines {
			stamp := ""
			if l.AtMs > 0 {
				stamp = time.UnixMilli(l.AtMs).UTC().Format(stampLayout) + " "
			}
			if _, err := fmt.Fprintf(v.w, "%s%s\n", stamp, l.Text); err != nil {
				return err
			}
		}
		return nil
	})
	if began {
		return errWritten
	}
	return err
}

// streamPodLog appends to the log that the browser shows. The ID of an event is the cursor of its
// last line.
func (v *visit) streamPodLog(req *controlv1.FollowPodLogsRequest) error {
	req.Follow, req.After = true, cmp.Or(v.r.Header.Get("Last-Event-ID"), v.query().Get("after"))
	out := &events{v: v}
	v.startStream()
	err := v.followPodLog(req, func(m *controlv1.FollowPodLogsResponse) error {
		lines := podLines(m.Lines)
		if m.EndReason != "" {
			lines = append(lines, logLine{severity: modelv1.LogSeverity_ERROR, text: withoutEscapes(m.EndReason)})
		}
		return out.appendLog(m.Cursor, "", lines)
	})
	return out.endLog(err)
}

// errSeveral refuses an address that names several applications.
var errSeveral = status.Error(codes.InvalidArgument, "several applications have this name")

// objectSource is the stream of one object.
type objectSource struct{ id string }

func liveObject(v *visit) (source, error) {
	id, several, err := v.findApplication()
	if several != nil {
		err = errSeveral
	}
	return &objectSource{id}, err
}

func (s *objectSource) watch(v *visit) (receive, error) { return v.watchApplications(s.id) }

func (s *objectSource) opened() string { return "" }

func (s *objectSource) parts(v *visit) ([]part, error) {
	resp, err := v.control.GetApplicationSummary(v.ctx, &controlv1.GetApplicationSummaryRequest{ApplicationId: s.id, MaxAgeMs: v.age.Milliseconds()})
	if err != nil {
		return nil, err
	}
	o, err := v.readObject(&applicationView{id: s.id, app: resp.GetSummary().GetApplication()}, v.query())
	if err != nil {
		return nil, err
	}
	return o.parts(v), nil
}

// podLogStream returns the address of the stream that continues a log; "" for a container that
// has ended.
func podLogStream(o *objectView, log *podLog) string {
	if log.previous {
		return ""
	}
	more := url.Values{"follow": {"yes"}}
	if log.cursor != "" {
		more.Set("after", log.cursor)
	}
	return podLogPath(o, log, more)
}

// managed says what a manager did.
func managed(m *controlv1.FieldManager) string {
	text := m.Operation
	if m.Subresource != "" {
		text += " of " + m.Subresource
	}
	return text + ", " + plural(int32(len(m.Fields))+m.FieldsLeftOut, "field", "fields")
}

// kubernetesEventMark returns the type of an event as a state.
func kubernetesEventMark(e *controlv1.ObjectEvent) mark {
	if e.Type == "Warning" {
		return mark{icon: "warning", word: e.Type, role: roleWarn}
	}
	return mark{icon: "dot", word: e.Type, role: roleMuted}
}

// reported says how often an event occurred, and who reported it.
func reported(e *controlv1.ObjectEvent) string {
	var parts []string
	if e.Count > 1 {
		parts = append(parts, fmt.Sprintf("×%d", e.Count))
	}
	if e.Source != "" {
		parts = append(parts, "by "+e.Source)
	}
	return strings.Join(parts, " ")
}

// treePath returns the address of the tree without an object beside it.
func treePath(a *applicationView) string {
	return withQuery(applicationPath(a.id, a.app.GetName()), url.Values{"tab": {"objects"}})
}

// opensObject returns what makes a link open or close an object beside the tree. Without a script
// it leads to a view with both.
func opensObject(path string) templ.Attributes {
	return templ.Attributes{"hx-get": path, "hx-target": "#drawer", "hx-swap": "outerHTML", "hx-push-url": "true", "hx-include": "#opened", "hx-sync": "closest .objects:replace"}
}
