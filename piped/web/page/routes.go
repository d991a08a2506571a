package page

import "net/http"

// route is one path of the page. serve renders a view or an action, live a stream of events;
// one of them is set.
type route struct {
	pattern string
	nav     string // label in the bar; "" for none
	key     string // key after `g` that opens it; "" for none
	serve   func(*visit) (*screen, error)
	live    func(*visit) (source, error)
}

// otherwise is the pattern of the addresses that no view has.
const otherwise = "/"

// routes are all paths of the page. To add a view, write its files and add its lines here and to
// the table of the test that walks them.
func routes() []route {
	return []route{
		{pattern: "GET /{$}", nav: "Now", key: "n", serve: showNow},
		{pattern: "GET /live", live: liveNow},
		{pattern: "GET /strip/live", live: liveStrip},
		{pattern: "GET /applications", nav: "Applications", key: "a", serve: showApplications},
		{pattern: "GET /applications/live", live: liveApplications},
		{pattern: "POST /applications/filters", serve: changeFilters},
		{pattern: "POST /applications/columns", serve: changeColumns},
		{pattern: "GET /applications/{ref}", serve: showApplication},
		{pattern: "GET /applications/{ref}/live", live: liveApplication},
		{pattern: "GET /applications/{ref}/object/live", live: liveObject},
		{pattern: "GET /applications/{ref}/object/log", serve: showPodLog},
		{pattern: "GET /deployments/{id}", serve: showDeployment},
		{pattern: "GET /deployments/{id}/live", live: liveDeployment},
		{pattern: "GET /deployments/{id}/stages/{stage}/log", serve: showLog},
		{pattern: "GET /deployments/{id}/stages/{stage}/lines", serve: showLogLines},
		{pattern: "GET /rollouts", nav: "Rollouts", key: "r", serve: showRollouts},
		{pattern: "GET /rollouts/live", live: liveRollouts},
		{pattern: "GET /deployments", serve: showDeployments},
		{pattern: "GET /delivery", nav: "Delivery", key: "d", serve: showDelivery},
		{pattern: "GET /events", nav: "Events", key: "e", serve: showEvents},
		{pattern: "GET /events/live", live: liveEvents},
		{pattern: "GET /plan-previews", serve: showPlanPreviews},
		{pattern: "GET /plan-previews/live", live: livePlanPreviews},
		{pattern: "GET /plan-previews/{id}", serve: showPlanPreview},
		{pattern: "GET /plan-previews/{id}/live", live: livePlanPreviews},
		{pattern: "GET /plan-previews/{id}/diff", serve: showPreviewDiff},
		{pattern: "GET /previews", serve: showPullPreviews},
		{pattern: "GET /previews/live", live: livePullPreviews},
		{pattern: "GET /trace", serve: showTrace},
		{pattern: "GET /trace/live", live: liveTrace},
		{pattern: "GET /chains/{id}", serve: showChain},
		{pattern: "GET /chains/{id}/live", live: liveChain},
		{pattern: "GET /agent", nav: "Agent", key: "g", serve: showAgent},
		{pattern: "GET /agent/live", live: liveAgent},
		{pattern: "GET /search", serve: showSearch},
		{pattern: "GET /actions/{action}", serve: showAction},
		{pattern: "POST /actions/{action}", serve: runAction},
		{pattern: "GET /commands", serve: showCommands},
		{pattern: "GET /commands/live", live: liveCommands},
		{pattern: "GET /commands/{id}", serve: showCommand},
		{pattern: otherwise, serve: showNothing},
	}
}

// path returns the path of a route without variables.
func (r route) path() string {
	_, path, _ := cutMethod(r.pattern)
	if path == "/{$}" {
		return "/"
	}
	return path
}

// serve answers a request after the caller is known.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, route route) {
	v, err := h.visit(w, r)
	if err != nil {
		v.refuse(route, err)
		return
	}
	if route.live != nil {
		v.stream(route.live)
		return
	}
	s, err := route.serve(v)
	if err != nil {
		v.refuse(route, err)
		return
	}
	v.render(s)
}
