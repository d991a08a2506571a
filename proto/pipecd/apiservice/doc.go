// Package apiservice holds grpc.service.apiservice.APIService, the service
// that an unmodified pipectl speaks, generated from the .proto file beside it.
// Service, method, field and enum numbers are PipeCD's. It holds no behaviour.
package apiservice
