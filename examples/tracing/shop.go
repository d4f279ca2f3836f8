package main

import (
	"net/http"
	"sync/atomic"

	"github.com/gin-gonic/gin"
	"github.com/latchkit/latchkit/internal/demo/rpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// traceHeader tells the caller under which id to look for its request.
const traceHeader = "Trace-Id"

// newShop returns the shop's HTTP server. Its payments go to the replicas of the order service in turn.
func newShop(tp trace.TracerProvider, replicas ...string) (http.Handler, func(), error) {
	var orders []*grpc.ClientConn
	stop := func() {
		for _, conn := range orders {
			conn.Close()
		}
	}
	for _, addr := range replicas {
		conn, err := grpc.NewClient(addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStatsHandler(otelgrpc.NewClientHandler(
				otelgrpc.WithTracerProvider(tp), otelgrpc.WithPropagators(propagation.TraceContext{}))))
		if err != nil {
			stop()
			return nil, nil, err
		}
		orders = append(orders, conn)
	}

	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(nameSpan)
	var turn atomic.Uint32
	router.POST("/orders/:orderID/pay", func(c *gin.Context) {
		replica := orders[(int(turn.Add(1))-1)%len(orders)]
		receipt, err := rpc.Call(c.Request.Context(), replica, methodPay, c.Param("orderID"))
		if err != nil {
			c.String(http.StatusBadGateway, err.Error())
			return
		}
		c.String(http.StatusOK, receipt)
	})
	handler := otelhttp.NewHandler(router, "request",
		otelhttp.WithTracerProvider(tp), otelhttp.WithPropagators(propagation.TraceContext{}))
	return handler, stop, nil
}

// nameSpan gives the server's span the name of its route, which otelhttp in front of the router does not know.
func nameSpan(c *gin.Context) {
	span := trace.SpanFromContext(c.Request.Context())
	span.SetName(c.Request.Method + " " + c.FullPath())
	c.Header(traceHeader, span.SpanContext().TraceID().String())
}
