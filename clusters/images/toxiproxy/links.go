package toxiproxy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/gorilla/mux"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// One call sets what many links are to be, or resets the connections of many. Both answer with the
// state of all proxies, as GET /proxies does.

// What a link is to be; what is left out stays as it is.
type linkOrder struct {
	Enabled    *bool             `json:"enabled"`
	Upstream   *toxics.LinkState `json:"upstream"`
	Downstream *toxics.LinkState `json:"downstream"`
}

func (server *ApiServer) linkRoutes(routes *mux.Router) {
	routes.HandleFunc("/links", server.linksSet).Methods("POST").Name("LinksSet")
	server.sharedRoutes(routes)
	routes.HandleFunc("/links/reset", server.linksReset).Methods("POST").Name("LinksReset")
}

func (server *ApiServer) linksSet(response http.ResponseWriter, request *http.Request) {
	orders := map[string]linkOrder{}
	err := json.NewDecoder(request.Body).Decode(&orders)
	if server.apiError(response, joinError(err, ErrBadRequestBody)) {
		return
	}
	found := map[string]*Proxy{}
	for name, order := range orders {
		proxy, err := server.Collection.Get(name)
		if server.apiError(response, err) {
			return
		}
		found[name] = proxy
		for _, state := range []*toxics.LinkState{order.Upstream, order.Downstream} {
			if state == nil {
				continue
			}
			if server.apiError(response, joinError(state.Check(), ErrBadRequestBody)) {
				return
			}
		}
	}
	for name, order := range orders {
		if order.Upstream != nil {
			found[name].Toxics.setLink(stream.Upstream, *order.Upstream)
		}
		if order.Downstream != nil {
			found[name].Toxics.setLink(stream.Downstream, *order.Downstream)
		}
	}
	failed := make(chan error, len(orders))
	var all sync.WaitGroup
	for name, order := range orders {
		if order.Enabled == nil {
			continue
		}
		all.Add(1)
		go func(proxy *Proxy, enable bool) {
			defer all.Done()
			if !enable {
				proxy.Stop()
			} else if err := proxy.Start(); err != nil && err != ErrProxyAlreadyStarted {
				failed <- fmt.Errorf("%s: %w", proxy.Name, err)
			}
		}(found[name], *order.Enabled)
	}
	all.Wait()
	close(failed)
	if server.apiError(response, <-failed) {
		return
	}
	server.ProxyIndex(response, request)
}

func (server *ApiServer) linksReset(response http.ResponseWriter, request *http.Request) {
	var names []string
	err := json.NewDecoder(request.Body).Decode(&names)
	if server.apiError(response, joinError(err, ErrBadRequestBody)) {
		return
	}
	ended := 0
	for _, name := range names {
		proxy, err := server.Collection.Get(name)
		if server.apiError(response, err) {
			return
		}
		ended += proxy.resetConnections()
	}
	response.Header().Set("Content-Type", "application/json")
	server.apiError(response, json.NewEncoder(response).Encode(map[string]int{"ended": ended}))
}

// setLink replaces the state of one stream, and begins to keep one.
func (c *ToxicCollection) setLink(direction stream.Direction, state toxics.LinkState) {
	c.Lock()
	defer c.Unlock()
	name := "link_" + direction.String()
	if found := c.findToxicByName(name); found != nil {
		found.Toxic.(*toxics.LinkToxic).Set(state)
		return
	}
	made := &toxics.ToxicWrapper{
		Name: name, Type: "link", Stream: direction.String(), Direction: direction, Toxicity: 1,
	}
	toxics.New(made).(*toxics.LinkToxic).Set(state)
	c.chainAddToxic(made)
}

// resetConnections ends every open connection with RST, towards both sides, whatever is on its way.
// Returns how many there were: those of clients, and those to the server.
func (proxy *Proxy) resetConnections() int {
	proxy.connections.Lock()
	open := make([]net.Conn, 0, len(proxy.connections.list))
	for _, connection := range proxy.connections.list {
		open = append(open, connection)
	}
	proxy.connections.Unlock()
	for _, connection := range open {
		if tcp, ok := connection.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = connection.Close()
	}
	return len(open)
}
